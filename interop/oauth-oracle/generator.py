"""Generates cases for `credence verify --jsonl` from a seed: access tokens, DPoP proofs, and errors in both.

The same seed gives the same cases, except for RSA keys and the randomness of ECDSA and PSS signatures. The generator does
not know the answers.
"""

import hashlib
import json
import random

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from verifier import encoded, normalized

NOW = 1_800_000_000
SERVICE = "https://orders.example"
URI = "https://orders.example/v1/orders"
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class Signer:
    """A private key."""

    def __init__(self, kind, private, name=None):
        self.kind, self.private, self.name = kind, private, name
        public = private.public_key()
        if kind == "RSA":
            numbers = public.public_numbers()
            modulus = numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8)
            self.required = {"e": "AQAB", "kty": "RSA", "n": encoded(modulus)}
        elif kind == "Ed25519":
            x = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
            self.required = {"crv": "Ed25519", "kty": "OKP", "x": encoded(x)}
        else:
            numbers = public.public_numbers()
            x, y = encoded(numbers.x.to_bytes(32)), encoded(numbers.y.to_bytes(32))
            self.required = {"crv": kind, "kty": "EC", "x": x, "y": y}

    def jwk(self, **more):
        name = {"kid": self.name} if self.name else {}
        return {**self.required, **name, **more}

    def secret(self):
        if self.kind == "Ed25519":
            return encoded(self.private.private_bytes_raw())
        return encoded(self.private.private_numbers().private_value.to_bytes(32))

    def thumbprint(self):
        text = json.dumps(self.required, separators=(",", ":"), sort_keys=True)
        return encoded(hashlib.sha256(text.encode()).digest())

    def algorithm(self):
        return {"RSA": "RS256", "Ed25519": "Ed25519", "P-256": "ES256", "secp256k1": "ES256K"}[self.kind]

    def sign(self, algorithm, message, salt=32):
        """A signature of this key's kind; `algorithm` decides between the two of RSA."""
        if self.kind == "Ed25519":
            return self.private.sign(message)
        if self.kind == "RSA":
            scheme = padding.PKCS1v15()
            if algorithm == "PS256":
                scheme = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=salt)
            return self.private.sign(message, scheme, hashes.SHA256())
        r, s = decode_dss_signature(self.private.sign(message, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32) + s.to_bytes(32)


class Raw(str):
    """JSON text that is written as it is."""


def write(value):
    """JSON, with `Raw` as it is, and pairs for objects that repeat names."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        value = list(value.items())
        return "{" + ",".join(f"{json.dumps(name)}:{write(inner)}" for name, inner in value) + "}"
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(name)}:{write(inner)}" for name, inner in value.pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(write(inner) for inner in value) + "]"
    return json.dumps(value)


class Pairs:
    """An object whose names may repeat."""

    def __init__(self, pairs):
        self.pairs = pairs


WILDCARD = {"constraint_type": "wildcard"}
SCOPES = {
    "orders.read": {"orders.read": {}},
    "orders.any": {"orders.create": {"amount": WILDCARD, "*": WILDCARD}},
    "orders.small": {
        "orders.create": {
            "amount": {"constraint_type": "range", "max": 100, "min": 0, "min_inclusive": False},
            "currency": {"constraint_type": "one_of", "values": ["EUR", "CHF"], "optional": True},
        },
        "orders.read": {"id": {"constraint_type": "not_one_of", "excluded": [7, "7", None]}},
    },
    "orders.tagged": {
        "orders.create": {
            "amount": {
                "constraint_type": "any",
                "constraints": [
                    {"constraint_type": "exact", "value": 1.5},
                    {
                        "constraint_type": "all",
                        "constraints": [
                            {"constraint_type": "range", "min": 10, "max": 20, "max_inclusive": False},
                            {"constraint_type": "not_one_of", "excluded": [13]},
                        ],
                    },
                ],
            },
            "tags": {"constraint_type": "subset", "allowed": ["a", "b"]},
            "flags": {"constraint_type": "contains", "required": ["x"], "optional": True},
        }
    },
}
TYPES = {
    "payment": {
        "tools": {
            "orders.create": {
                "amount": {"constraint_type": "range", "max": {"number_from": "/instructedAmount/amount"}},
                "currency": {
                    "constraint_type": "exact",
                    "value": {"from": "/instructedAmount/currency"},
                    "optional": True,
                },
            }
        },
        "requires": {"/actions": {"constraint_type": "contains", "required": ["initiate"]}},
        "ignore": ["/creditorName", "/a~1b", "/extra/note"],
    },
    "listing": {
        "tools": {"orders.read": {"id": {"constraint_type": "one_of", "values": {"from": "/identifiers"}}}},
        "requires": {"/state": {"constraint_type": "exact", "value": "open"}},
    },
}


class Issuer:
    """A trust anchor of the cases, and the private halves of its keys."""

    def __init__(self, issuer, signers, algorithms, settings, as_set):
        self.issuer, self.signers, self.algorithms = issuer, signers, algorithms
        self.settings, self.as_set = settings, as_set

    def anchor(self, keys=None):
        keys = keys or [signer.jwk() for signer in self.signers]
        anchor = {"iss": self.issuer, "access_tokens": self.settings}
        anchor.update({"jwks": {"keys": keys}} if self.as_set else {"jwk": keys[0]})
        return anchor


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        rsa_keys = [rsa.generate_private_key(65537, bits) for bits in (2048, 2048, 2048, 3072)]
        self.rsa = [Signer("RSA", key, f"rsa-{place}") for place, key in enumerate(rsa_keys)]
        self.ed = [self.ed25519(f"ed-{place}") for place in range(5)]
        self.ec = [self.curve(ec.SECP256R1(), "P-256", f"ec-{place}") for place in range(4)]
        self.k256 = self.curve(ec.SECP256K1(), "secp256k1", "k-0")
        self.other = [self.rsa[2], self.ed[4], self.ec[3]]
        unnamed = Signer("RSA", self.rsa[0].private)
        both = {"scopes": SCOPES, "authorization_details": TYPES}
        self.issuers = [
            Issuer("https://login.example.org/realms/shop", self.rsa[:2], ["RS256", "PS256"], both, True),
            Issuer("https://login.example.org/v2.0", [unnamed], ["RS256"], {**both, "typ": "JWT"}, False),
            Issuer("https://id.example.com/", self.ec[:2], ["ES256"], {**both, "scope_claim": "scp"}, True),
            Issuer("https://id.example.com", [self.ec[2]], ["ES256"], {**both, "typ": "at+jwt"}, False),
            Issuer("https://ed.example.com", self.ed[:2], ["Ed25519", "EdDSA"], {**both, "typ": "JWT"}, True),
            Issuer(
                "urn:example:mixed",
                [self.rsa[3], self.ec[0], Signer("Ed25519", self.ed[2].private), self.ed[3]],
                ["PS256", "ES256", "Ed25519"],
                {**both, "typ": "JWT", "scope_claim": "roles", "delegation_depth": 1},
                True,
            ),
        ]
        # The holders of tokens.
        self.holders = [self.ed25519(None), self.curve(ec.SECP256R1(), "P-256", None)]
        self.mallory = [self.ed25519(None), self.curve(ec.SECP256R1(), "P-256", None)]

    def ed25519(self, name):
        return Signer("Ed25519", ed25519.Ed25519PrivateKey.from_private_bytes(self.random.randbytes(32)), name)

    def curve(self, curve, kind, name):
        secret = self.random.randrange(1, P256_ORDER - 1)
        return Signer(kind, ec.derive_private_key(secret, curve), name)

    def pick(self, several):
        return self.random.choice(several)

    def chance(self, one_in):
        return self.random.randrange(one_in) == 0

    def case(self, number):
        """One line."""
        return write(Case(self, number).members())


class Case:
    """A valid case, and what changes it."""

    def __init__(self, generator, number):
        self.g, self.number = generator, number
        g = generator
        self.issuer = g.pick(g.issuers)
        self.signer = g.pick(self.issuer.signers)
        fitting = {"RSA": ("RS256", "PS256"), "P-256": ("ES256",), "Ed25519": ("Ed25519", "EdDSA")}[self.signer.kind]
        self.algorithm = g.pick([name for name in self.issuer.algorithms if name in fitting])
        self.signs_with = self.signer
        self.algorithms = [*self.issuer.algorithms, "Ed25519", "ES256"]
        self.anchors = None
        self.now = NOW
        self.audience = [SERVICE, "orders"] if g.chance(3) else [SERVICE]
        self.proof_kind = g.pick(["none", "dpop", "dpop"])
        self.nonce = "n-1" if g.chance(4) else None
        self.method, self.uri = g.pick(["GET", "POST", "PATCH"]), URI
        self.holder = g.pick(g.holders)
        self.header = self.default_header()
        self.claims = self.default_claims()
        self.tool, self.args = self.granted()
        self.salt = 32
        self.after_signing = []
        # The parts that are written in another text, last.
        self.rewritten = set()
        self.proof_header = {
            "typ": "dpop+jwt",
            "alg": self.holder.algorithm(),
            "jwk": {name: value for name, value in self.holder.required.items()},
        }
        self.proof_claims = {
            "jti": f"p{number}",
            "htm": self.method,
            "htu": self.uri,
            "iat": self.now + g.random.randint(-30, 30),
        }
        if self.nonce:
            self.proof_claims["nonce"] = self.nonce
        self.proof_signer = self.holder
        self.proof_after_signing = []
        self.token_hash = None
        self.drops_proof = False
        self.mutate()

    def default_header(self):
        g = self.g
        header = {"alg": self.algorithm}
        if self.issuer.settings.get("typ") == "JWT":
            typ = g.pick(["JWT", "JWT", "jwt", "at+jwt", None, "Jwt"])
        else:
            typ = g.pick(["at+jwt", "at+jwt", "AT+JWT", "application/at+jwt", "Application/At+JWT"])
        if typ:
            header["typ"] = typ
        if self.issuer.as_set and self.signer.name:
            header["kid"] = self.signer.name
        elif g.chance(3):
            header["kid"] = "a-kid-that-is-not-configured"
        items = list(header.items())
        g.random.shuffle(items)
        return dict(items)

    def is_typed(self):
        return self.header.get("typ", "").lower() in ("at+jwt", "application/at+jwt")

    def default_claims(self):
        g = self.g
        issued = self.now - g.random.randint(0, 3000)
        claims = {
            "iss": self.issuer.issuer,
            "sub": g.pick(["ada", "0f3c", "ünï"]),
            "aud": g.pick([SERVICE, [SERVICE], ["https://other.example", SERVICE], [SERVICE, SERVICE]]),
            "iat": issued,
            "exp": self.now + g.random.randint(1, 3600),
            "jti": f"t{self.number}",
            "client_id": "planner",
        }
        if not self.is_typed():
            if g.chance(3):
                del claims["jti"]
            if g.chance(3):
                del claims["client_id"]
                claims[g.pick(["azp", "cid", "appid"])] = "planner"
            if g.chance(4):
                claims["typ"] = g.pick(["Bearer", "bearer", "DPoP"])
            if g.chance(6):
                claims["token_use"] = "access"
        if g.chance(3):
            claims["nbf"] = issued
        if g.chance(5):
            claims["act"] = self.actors(g.random.randint(1, 8))
        if g.chance(5):
            claims[g.pick(["auth_time", "acr", "ver", "groups", "tid"])] = g.pick([1, "x", ["a"], {"b": None}, 1.5])
        if self.proof_kind == "dpop":
            claims["cnf"] = self.g.pick([{"jkt": self.holder.thumbprint()}] * 3 + [{"jwk": dict(self.holder.required)}])
        return claims

    def actors(self, depth):
        actor = {"sub": "agent-1"}
        for place in range(1, depth):
            actor = {"sub": f"agent-{place}", "act": actor}
        return actor

    def granted(self):
        """A tool and arguments that the token grants, mostly."""
        g = self.g
        name = self.issuer.settings.get("scope_claim", "scope")

        def scopes(*names):
            names = [*names, "openid"] if g.chance(2) else list(names)
            g.random.shuffle(names)
            self.claims[name] = names if g.chance(3) else g.pick([" ", "  "]).join(names)

        way = g.random.randrange(8)
        amount = g.pick([1, 50, 100, 99.99, 1.5, Raw("1e2"), Raw("100.0"), 15])
        if way == 0:
            scopes("orders.read")
            return "orders.read", g.pick([{}, {"id": 7}, {"any": [1, {"a": None}]}])
        if way == 1:
            scopes("orders.any")
            return "orders.create", {"amount": g.pick([amount, "much", None]), "more": True}
        if way == 2:
            scopes("orders.small")
            return "orders.create", g.pick([{"amount": amount}, {"amount": amount, "currency": "CHF"}])
        if way == 3:
            scopes("orders.tagged", "orders.small")
            tagged = {"amount": g.pick([1.5, 10, 19.5]), "tags": g.pick([[], ["a"], ["b", "a", "a"]])}
            return "orders.create", g.pick([tagged, {**tagged, "flags": ["y", "x"]}, {"amount": amount}])
        if way == 4:
            scopes("orders.small", "orders.any", "unknown")
            return g.pick([("orders.create", {"amount": amount}), ("orders.read", {"id": g.pick([8, "8", 7.5])})])
        entries = [self.payment(), self.listing()]
        entries.append({"type": "unknown", "limits": {"max": 1}})
        g.random.shuffle(entries)
        self.claims["authorization_details"] = entries
        if way == 5:
            return "orders.read", {"id": g.pick(["o-1", 2])}
        currency = {"currency": "EUR"} if g.chance(2) else {}
        if way == 6:
            return "orders.create", {"amount": g.pick([100, 123.5, 0, -3]), **currency}
        own = {"type": "attenuating_agent_token", "tools": {"ship": {"to": {"constraint_type": "exact", "value": "x"}}}}
        entries.append(own)
        return g.pick([("ship", {"to": "x"}), ("orders.create", {"amount": 3, **currency})])

    def payment(self):
        entry = {
            "type": "payment",
            "actions": self.g.pick([["initiate"], ["status", "initiate"]]),
            "instructedAmount": {"currency": "EUR", "amount": self.g.pick(["123.50", "1.235e2", "200"])},
        }
        if self.g.chance(3):
            entry["creditorName"] = "Merchant"
        if self.g.chance(5):
            entry["a/b"] = {"c": 1}
        if self.g.chance(5):
            entry["extra"] = {"note": "x"}
        return entry

    def listing(self):
        return {"type": "listing", "state": "open", "identifiers": ["o-1", 2]}

    # === What changes it ===

    def mutate(self):
        g = self.g
        count = g.pick([0, 0, 1, 1, 1, 2])
        mutations = TOKEN_MUTATIONS * 2 + GRANT_MUTATIONS + SETTING_MUTATIONS
        if self.proof_kind == "dpop":
            mutations = mutations + PROOF_MUTATIONS * 3
        for _ in range(count):
            g.pick(mutations)(self, g)

    # === The result ===

    def members(self):
        header, claims = self.written("header", self.header), self.written("claims", self.claims)
        token = self.signed(header, claims, self.signs_with, self.algorithm, self.salt)
        for change in self.after_signing:
            token = change(token)
        policy = {"algs": self.algorithms, "proof": self.proof_kind}
        members = {
            "id": self.number,
            "anchors": self.anchors or [self.issuer.anchor()],
            "chain": [token],
            "tool": self.tool,
            "args": self.args,
            "now": self.now,
            "audience": self.audience,
            "policy": policy,
        }
        if self.proof_kind == "dpop":
            if self.nonce:
                policy["nonce"] = self.nonce
            claims = self.proof_claims
            if "ath" not in claims:
                hashed = token if self.token_hash is None else self.token_hash
                claims["ath"] = encoded(hashlib.sha256(hashed.encode()).digest())
            if claims["ath"] is Absent:
                del claims["ath"]
            claims = self.written("proof_claims", claims)
            header = self.written("proof_header", self.proof_header)
            proof = self.signed(header, claims, self.proof_signer, self.proof_signer.algorithm(), 32)
            for change in self.proof_after_signing:
                proof = change(proof)
            members["method"], members["uri"] = self.method, self.uri
            if not self.drops_proof:
                members["proof"] = proof
        return members

    def written(self, part, value):
        return other_object(value, self.g) if part in self.rewritten else value

    def signed(self, header, claims, signer, algorithm, salt):
        message = encoded(self.bytes(header)) + "." + encoded(self.bytes(claims))
        if algorithm == "none":
            return message + "."
        if algorithm == "HS256":
            # RFC 8725, section 2.1: the public key as a MAC key.
            import hmac

            secret = write(self.signer.required).encode()
            return message + "." + encoded(hmac.new(secret, message.encode(), "sha256").digest())
        return message + "." + encoded(signer.sign(algorithm, message.encode(), salt))

    @staticmethod
    def bytes(value):
        return value if isinstance(value, bytes) else write(value).encode()


class Absent:
    """Stands for a claim that is left out."""


# === Mutations of both ===

ODD = [None, True, 7, 0, -1, 1.5, "", "x", [], ["x"], {}, {"a": 1}, [7], Raw("1e3"), Raw("1.0"), Raw('"\\ud800"'), Raw("1e999")]


def text_change(g):
    """A change of a compact JWS."""
    part = g.random.randrange(3)

    def flip(token):
        parts = token.split(".")
        data = list(parts[part])
        if data:
            place = g.random.randrange(len(data))
            data[place] = g.pick("ABCDabcd0189-_")
            parts[part] = "".join(data)
        return ".".join(parts)

    def last(token):
        # Unused bits of the last character, or another byte.
        parts = token.split(".")
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        if parts[part]:
            place = alphabet.index(parts[part][-1])
            parts[part] = parts[part][:-1] + alphabet[place ^ 1]
        return ".".join(parts)

    def pad(token):
        parts = token.split(".")
        parts[part] += g.pick(["=", "==", "\n", " ", "A", "AA", "+", "/"])
        return ".".join(parts)

    def only_of_three_parts(change):
        return lambda token: change(token) if token.count(".") == 2 else token

    return g.pick(
        [only_of_three_parts(change) for change in (flip, flip, last, pad)]
        + [lambda token: token + ".", lambda token: token + ".e30", lambda token: "." + token]
        + [lambda token: token.rsplit(".", 1)[0], lambda token: token.rsplit(".", 1)[0] + "."]
        + [lambda token: token[:-1], lambda token: token[:-2], lambda token: " " + token, lambda token: ""]
    )


def other_object(value, g):
    """The same object in another text: repeated names, escapes, white space, order, or what is no object."""
    pairs = list(value.items())
    way = g.random.randrange(9)
    if way == 0 and pairs:
        name, inner = g.pick(pairs)
        place = g.random.randrange(len(pairs) + 1)
        return Pairs(pairs[:place] + [(name, g.pick([inner, "x", 7]))] + pairs[place:])
    if way == 1:
        return write(value).replace(":", " :\n\t", 1).encode()
    if way == 2:
        return ("\ufeff" + write(value)).encode()
    if way == 3:
        return write(value).encode() + g.pick([b" ", b"\n", b"x", b"{}", b"\0", b"\x0c"])
    if way == 4:
        return g.pick([b"", b"[]", b"null", b'"x"', b"{", b'{"a":1,}', b"{'a':1}", b"\xff", b'{"a":"\xff"}', b'{"a":"\x01"}'])
    if way == 5:
        g.random.shuffle(pairs)
        return dict(pairs)
    if way == 6:
        return {**value, "deep": nested(g.random.randint(77, 81))}
    if way == 7:
        # Another spelling of a name.
        return write(value).replace('"i', '"\\u0069', 1).encode()
    return {**value, "x": g.pick([Raw("NaN"), Raw("01"), Raw("1."), Raw("-0"), Raw("1e999"), Raw("tru"), "\u2028", 2**70])}


def nested(depth):
    return Raw("[" * depth + "]" * depth)


# === Mutations of tokens ===


def sign_with_another_key(case, g):
    case.signs_with = g.pick([signer for signer in g.other + g.mallory if signer.kind == case.signer.kind] or g.other)


def sign_with_another_kind(case, g):
    case.signs_with = g.pick(g.other)
    if g.chance(2):
        case.header["alg"] = case.algorithm = case.signs_with.algorithm()


def another_key_of_the_issuer(case, g):
    case.signs_with = g.pick(case.issuer.signers)
    if case.signs_with.kind != case.signer.kind and g.chance(2):
        case.header["alg"] = case.algorithm = case.signs_with.algorithm()


def another_algorithm(case, g):
    case.header["alg"] = g.pick(
        ["RS256", "PS256", "ES256", "EdDSA", "Ed25519", "ES256K", "RS384", "PS512", "ES384", "HS256", "none", "None"]
        + ["rs256", "Ed448", "", 7, None, ["RS256"], "RS256 "]
    )
    # Either the header alone, or the signature too.
    if g.chance(2) and isinstance(case.header["alg"], str):
        case.algorithm = case.header["alg"]


def rsa_confusion(case, g):
    if case.signer.kind == "RSA":
        case.header["alg"] = g.pick(["RS256", "PS256"])
        case.algorithm = g.pick(["RS256", "PS256"])


def another_salt(case, g):
    case.salt = g.pick([0, 20, 31, 33, 64])


def without_algorithm(case, g):
    case.header.pop("alg", None)


def another_media_type(case, g):
    case.header["typ"] = g.pick(
        ["at+jwt", "AT+JWT", "application/at+jwt", "APPLICATION/AT+JWT", "JWT", "jwt", "application/jwt", "application/JWT"]
        + ["aat+jwt", "dpop+jwt", "logout+jwt", "secevent+jwt", "id+jwt", "at+jwt ", " at+jwt", "at+jwt;x=1", "text/at+jwt"]
        + ["application/application/at+jwt", "AT+ JWT", "JOSE", "jw\u0074", "\u0130wt", "at\u207ajwt", "", 7, None, [], True]
    )


def without_media_type(case, g):
    case.header.pop("typ", None)


def another_kid(case, g):
    case.header["kid"] = g.pick(
        ["rsa-0", "rsa-1", "rsa-3", "ec-0", "ec-1", "ed-0", "ed-1", "ed-3", "nothing", "", "RSA-0", "rsa-0 "]
        + [7, None, [], {}, True, "../../dev/null", "' OR 1=1"]
    )


def without_kid(case, g):
    case.header.pop("kid", None)


def keys_in_the_header(case, g):
    mallory = g.pick(g.mallory)
    name = g.pick(["jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256"])
    value = {"jwk": mallory.jwk(), "x5c": ["MIIB"]}.get(name, "https://evil.example/keys")
    case.header[name] = value
    if g.chance(2):
        case.signs_with = mallory
        case.header["alg"] = case.algorithm = mallory.algorithm()


def critical_header(case, g):
    case.header["crit"] = g.pick([["exp"], ["b64"], [], "exp", None, ["kid"], {}])
    if g.chance(2):
        case.header["b64"] = g.pick([True, False])


def other_header_member(case, g):
    case.header[g.pick(["cty", "zip", "enc", "nonce", "b64", "x", "iss", "epk"])] = g.pick(ODD)


def other_header_text(case, g):
    case.rewritten.add("header")


def long_header(case, g):
    # Around the limit of 4096 encoded bytes.
    case.header["x"] = "a" * g.random.randint(2850, 3100)


def other_claims_text(case, g):
    case.rewritten.add("claims")


def no_claim(case, g):
    case.claims.pop(g.pick(list(case.claims) or [""]), None)


def odd_claim(case, g):
    case.claims[g.pick([*case.claims, "nbf", "act", "cnf", "jti", "sub", "client_id"])] = g.pick(ODD)


def another_expiry(case, g):
    case.claims["exp"] = g.pick(
        [NOW - 1, NOW, NOW + 1, NOW + 2, 0, -1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), str(NOW + 60), NOW + 60.5]
        + [Raw(f"{NOW + 60}.0"), Raw("1.8e9"), Raw("18000001e2"), Raw("-0")]
    )


def another_lifetime(case, g):
    days = 90 * 24 * 60 * 60
    case.claims["iat"] = g.pick([NOW - 10, NOW, 0, NOW - days + 5])
    case.claims["exp"] = case.claims["iat"] + g.pick([-1, 0, 1, days - 1, days, days + 1, 2 * days])


def another_issue_time(case, g):
    case.claims["iat"] = g.pick(
        [NOW + 29, NOW + 30, NOW + 31, NOW + 600, NOW - 100, 0, -1, -(2**63), -(2**63) - 1, 2**63 - 1, str(NOW), NOW - 0.5]
        + [Raw(f"{NOW}.0"), Raw("1.8e9"), None]
    )


def another_begin(case, g):
    case.claims["nbf"] = g.pick(
        [NOW + 29, NOW + 30, NOW + 31, NOW + 600, NOW, 0, -5, 2**63, str(NOW), NOW + 0.5, None, True, Raw("1.8e9")]
    )


def another_clock(case, g):
    case.now = NOW + g.pick([-3600, -31, -30, -29, -1, 1, 29, 30, 31, 3600])


def another_issuer(case, g):
    case.claims["iss"] = g.pick(
        [issuer.issuer for issuer in g.issuers]
        + ["https://login.example.org/realms/shop/", "https://LOGIN.example.org/realms/shop", "https://id.example.com//"]
        + ["", "https://evil.example", None, 7, ["https://id.example.com"]]
    )


def another_audience(case, g):
    case.claims["aud"] = g.pick(
        ["https://orders.example/", "https://ORDERS.example", "orders", "https://other.example", "", [], [[]], None, 7, {}]
        + [["https://other.example"], [SERVICE, 7], [7, SERVICE], [None], {SERVICE: 1}, [SERVICE, "orders"], f" {SERVICE}"]
        + [f"{SERVICE} orders", [f"{SERVICE} orders"], ["orders"], "*"]
    )


def another_subject(case, g):
    case.claims["sub"] = g.pick(["", "x", 7, None, ["ada"], {"sub": "ada"}, "a" * 300])


def another_client(case, g):
    case.claims[g.pick(["client_id", "azp", "cid"])] = g.pick(["", "x", 7, None, ["planner"], {}])


def another_id(case, g):
    case.claims["jti"] = g.pick(["", "x", 7, None, ["t"], "\u0000", "a\\u0041"])


def another_token_of_the_issuer(case, g):
    name, value = g.pick(
        [("nonce", "n"), ("at_hash", "h"), ("c_hash", "h"), ("nonce", None), ("at_hash", "")]
        + [("typ", one) for one in ("ID", "Refresh", "Offline", "Bearer", "BEARER", "DPoP", "dpop", "Logout", "", 7, None)]
        + [("typ", "bearer "), ("typ", "JWT"), ("typ", "at+jwt"), ("typ", "\u212aearer")]
        + [("token_use", one) for one in ("id", "access", "ACCESS", "refresh", "", 7, None, ["access"])]
        + [("events", {"http://schemas.openid.net/event/backchannel-logout": {}})]
    )
    case.claims[name] = value


def another_confirmation(case, g):
    holder, other = case.holder, g.pick(g.mallory)
    digest = encoded(hashlib.sha256(b"a certificate").digest())
    case.claims["cnf"] = g.pick(
        [{"jkt": holder.thumbprint()}, {"jkt": other.thumbprint()}, {"jwk": holder.jwk()}, {"jwk": other.jwk()}]
        + [{"jkt": holder.thumbprint(), "jwk": holder.jwk()}, {"jkt": other.thumbprint(), "jwk": holder.jwk()}]
        + [{"jkt": holder.thumbprint(), "jwk": other.jwk()}, {"jkt": "x", "jwk": holder.jwk()}]
        + [{"x5t#S256": digest}, {"x5t#S256": digest, "jkt": holder.thumbprint()}, {"x5t#S256": "x"}]
        + [{"x5t#S256": digest, "jwk": holder.jwk()}, {"x5t#S256": 7, "jwk": holder.jwk()}, {"x5t#S256": 7}]
        + [{"jkt": holder.thumbprint() + "="}, {"jkt": holder.thumbprint()[:-1]}, {"jkt": holder.thumbprint().upper()}]
        + [{"jkt": 7}, {"jkt": None}, {"jkt": ""}, {}, {"kid": "k1"}, {"jwe": "x"}, {"jku": "https://x.example"}, [], "x", None]
        + [{"kid": "k1", "jkt": holder.thumbprint()}, {"jwk": {}}, {"jwk": None}, {"jwk": "x"}, {"jkt": None, "jwk": holder.jwk()}]
        + [{"jwk": holder.jwk(d=holder.secret())}, {"jwk": holder.jwk(use="enc")}, {"jwk": holder.jwk(use="sig", kid="k")}]
        + [{"jwk": g.rsa[0].jwk()}, {"jwk": g.k256.jwk()}, {"x5t": digest}, {"JKT": holder.thumbprint()}]
    )


def another_actor(case, g):
    case.claims["act"] = g.pick(
        [case.actors(depth) for depth in (1, 2, 7, 8, 9, 12)]
        + [{}, {"sub": ""}, {"sub": 7}, {"iss": "x"}, {"sub": "a", "act": {}}, {"sub": "a", "act": None}, "agent", None, []]
        + [{"sub": "a", "act": {"sub": "b", "iss": 7}}, {"sub": "a", "act": "b"}]
    )


def change_after_signing(case, g):
    case.after_signing.append(text_change(g))


def another_part(case, g):
    """The payload of another token under this signature."""
    claims = {**case.claims, "sub": "mallory"}

    def replaced(token):
        return token.split(".")[0] + "." + encoded(write(claims).encode()) + "." + token.split(".")[-1]

    case.after_signing.append(replaced)


def long_token(case, g):
    # Around the limit of 65,536 bytes.
    case.claims["x"] = "a" * g.random.randint(47_500, 48_800)


# === Mutations of grants ===


def another_scope(case, g):
    name = g.pick(["scope", "scp", "roles", case.issuer.settings.get("scope_claim", "scope")])
    case.claims[name] = g.pick(
        ["", " ", "openid", "orders.read", "orders.small", "orders.any", "ORDERS.READ", "orders.read,orders.any"]
        + ["orders.read\torders.any", " orders.any ", "orders.any\n", "orders.any openid orders.read orders.tagged"]
        + [[], ["orders.any"], ["orders.read orders.any"], ["orders.any", 7], [["orders.any"]], [None], {"orders.any": True}]
        + [7, None, True, ["orders.any", "orders.any"], ["orders.small", "orders.read"], "orders.any orders.any", [""]]
    )


def another_detail(case, g):
    entries = case.claims.get("authorization_details")
    entries = list(entries) if isinstance(entries, list) else []
    entry = g.pick([case.payment(), case.listing()])
    payment = entry["type"] == "payment"
    way = g.random.randrange(12)
    if way == 0:
        entry.pop(g.pick(list(entry)))
    elif way == 1:
        entry[g.pick(["limits", "extra", "currency", "a/b", "a~b", ""])] = g.pick([{}, {"x": 1}, 7, None, {"note": 1}, {"y": {}}])
    elif way == 2 and payment:
        entry["instructedAmount"]["amount"] = g.pick(
            [123.5, "123,50", "", "1e400", "0.1", "1", "-5", "+5", " 5", "05", "9007199254740993", "1e-7", None, "NaN", "1_0"]
        )
    elif way == 3 and payment:
        entry["instructedAmount"]["currency"] = g.pick(["USD", 7, None, ["EUR"], {"x": 1}, True, Raw("9007199254740993")])
    elif way == 4 and payment:
        entry["instructedAmount"] = g.pick([{}, "EUR 5", None, {"amount": "5"}, {"currency": "EUR"}, ["EUR", "5"]])
    elif way == 5 and payment:
        entry["instructedAmount"]["more"] = g.pick([1, {}, None])
    elif way == 6 and payment:
        entry["actions"] = g.pick([[], ["status"], "initiate", ["INITIATE"], None, ["initiate", Raw("9007199254740993")]])
    elif way == 7 and not payment:
        entry["identifiers"] = g.pick([[], "o-1", None, {}, [Raw("9007199254740993")], [1, [2], {"a": 3}, None], ["o-1"]])
    elif way == 8 and not payment:
        entry["state"] = g.pick(["closed", None, 7, ["open"], "open "])
    elif way == 9:
        entry["type"] = g.pick(["Payment", "", 7, None, ["payment"], "attenuating_agent_token", "unknown"])
    elif way == 10:
        entry = g.pick(["payment", None, 7, [], [entry], {}, {"type": "attenuating_agent_token"}])
    else:
        tools = g.pick(
            [{}, {"orders.create": {}}, {"orders.create": {"amount": WILDCARD}}, {"x": 7}, [], None, {"x": {"a": {}}}]
            + [{"x": {"*": {**WILDCARD, "optional": True}}}, {"orders.read": {"id": {"constraint_type": "regex"}}}]
            + [{"orders.create": {"amount": {"constraint_type": "range", "min": 5, "max": 4}}}]
        )
        entry = {"type": "attenuating_agent_token", "tools": tools}
    place = g.random.randrange(len(entries) + 1)
    if g.chance(2) and entries:
        entries[min(place, len(entries) - 1)] = entry
    else:
        entries.insert(place, entry)
    case.claims["authorization_details"] = entries


def another_shape_of_details(case, g):
    case.claims["authorization_details"] = g.pick([{}, None, "x", 7, [], [[]], [None], [7], case.payment(), [{}]])


def another_tool(case, g):
    case.tool = g.pick(["orders.read", "orders.create", "ship", "orders", "ORDERS.READ", "", "*", "orders.create "])


def other_arguments(case, g):
    case.args = g.pick(
        [{}, {"amount": 100}, {"amount": 100.01}, {"amount": 0}, {"amount": 13}, {"amount": 20}, {"amount": "50"}]
        + [{"amount": None}, {"amount": 50, "currency": "USD"}, {"amount": 50, "more": 1}, {"currency": "EUR"}, {"*": 1}]
        + [{"amount": 15, "tags": ["a", "c"]}, {"amount": 15, "tags": "a"}, {"amount": 15, "tags": []}, {"id": 7}]
        + [{"amount": 15, "tags": ["a"], "flags": ["y"]}, {"id": 7.0}, {"id": "7"}, {"id": None}, {"id": Raw("70e-1")}]
        + [{"amount": Raw("9007199254740993")}, {"amount": Raw("1e400")}, {"amount": Raw("0.1000000000000000055")}]
        + [{"amount": Raw("123.5000")}, {"amount": 123.51}, {"amount": Raw("-0")}, {"amount": True}, {"amount": [5]}]
        + [{"id": "o-1"}, {"id": 2}, {"id": 3}, {"id": [2]}, {"to": "x"}, {"to": "y"}, {"amount": 100, "currency": "EUR"}]
    )


# === Mutations of settings ===


def other_algorithms(case, g):
    # Each key still fits one.
    kinds = {signer.kind for signer in case.issuer.signers}
    chosen = []
    for kind in sorted(kinds):
        names = {"RSA": ["RS256", "PS256"], "P-256": ["ES256"], "Ed25519": ["Ed25519", "EdDSA"]}[kind]
        chosen += g.random.sample(names, g.random.randint(1, len(names)))
    case.algorithms = chosen + g.random.sample(["ES256K", "none", "HS256", "Ed25519", "ES256"], 2)
    g.random.shuffle(case.algorithms)


def other_anchors(case, g):
    own = case.issuer.anchor()
    others = [issuer.anchor() for issuer in g.random.sample(g.issuers, 2) if issuer is not case.issuer]
    fitting = {"RS256", "PS256", "ES256", "Ed25519"}
    case.algorithms = sorted({*case.algorithms, *fitting})
    case.anchors = g.pick([[own, *others], [*others, own], others or [own], []])
    if not case.anchors:
        case.anchors = [g.issuers[0].anchor()]


def other_settings(case, g):
    settings = dict(case.issuer.settings)
    way = g.random.randrange(7)
    if way == 0:
        settings["typ"] = g.pick(["JWT", "at+jwt", "jwt", "", None, 7])
    elif way == 1:
        settings["scope_claim"] = g.pick(["scope", "scp", "roles", "scopes", None])
    elif way == 2:
        settings.pop("scopes", None)
    elif way == 3:
        settings.pop("authorization_details", None)
    elif way == 4:
        settings[g.pick(["scope", "aud", "types"])] = {}
    elif way == 5:
        settings["scopes"] = {**SCOPES, "": {"orders.read": {}}, "openid": {"ship": {}}}
    else:
        settings["scopes"] = g.pick([{"openid": {}}, {"orders.any": {"orders.create": {"amount": {}}}}])
    anchor = case.issuer.anchor()
    anchor["access_tokens"] = settings
    case.anchors = [anchor]


def other_keys(case, g):
    """Purposes and errors of the issuer's JWKs."""
    keys = [signer.jwk() for signer in case.issuer.signers]
    place = case.issuer.signers.index(case.signer)
    jwk = keys[place]
    way = g.random.randrange(11)
    if way == 0:
        jwk["use"] = g.pick(["sig", "enc", "", None, "SIG"])
    elif way == 1:
        jwk["key_ops"] = g.pick([["verify"], ["sign", "verify"], ["sign"], [], "verify", ["encrypt"]])
    elif way == 2:
        jwk["alg"] = g.pick([case.algorithm, case.algorithm, "RSA-OAEP", "ES384", "", 7, "HS256"])
    elif way == 3:
        jwk["d"] = "AQAB"
    elif way == 4:
        jwk["kid"] = g.pick(["", 7, None, "renamed", "rsa-0", "rsa-1"])
    elif way == 5:
        jwk[g.pick(["x5c", "x5t", "ext", "nbf", "issuer"])] = g.pick([["MII"], "x", True, 5])
    elif way == 6 and jwk["kty"] == "RSA":
        jwk["e"] = g.pick(["AQAB", "Aw", "AAEAAQ", "AQAC", "", "AQA", 65537])
    elif way == 7 and jwk["kty"] == "RSA":
        jwk["n"] = g.pick([jwk["n"][:-8], "AQAB", jwk["n"] + "=", "AA" + jwk["n"], encoded(b"\0" + bytes(255) + b"\1")])
    elif way == 8 and jwk["kty"] != "RSA":
        jwk["x"] = g.pick([jwk["x"][:-1], "AA", jwk["x"] + "A", 7])
    elif way == 9:
        keys.append({"kty": g.pick(["oct", "EC", "OKP", "XYZ"]), "crv": g.pick(["P-384", "X25519"]), "x": "AA"})
    else:
        keys.append(dict(keys[0]))
    case.anchors = [case.issuer.anchor(keys)]


def another_service(case, g):
    case.audience = g.pick([["orders"], [], ["https://orders.example/"], ["https://other.example", SERVICE]])


def another_proof_kind(case, g):
    case.proof_kind = g.pick(["none", "dpop"])


# === Mutations of proofs ===


def another_method(case, g):
    case.proof_claims["htm"] = g.pick(
        ["GET", "POST", "PATCH", "get", "Post", case.method + " ", " " + case.method, "", 7, None, [case.method], "*"]
    )


def another_uri(case, g):
    case.proof_claims["htu"] = g.pick(SPELLINGS)


def another_request_uri(case, g):
    # Both spellings are the client's and the proxy's.
    case.uri = g.pick([one for one in SPELLINGS if normalized(one)])
    case.proof_claims["htu"] = g.pick([case.uri, case.uri, URI, g.pick(SPELLINGS)])


SPELLINGS = [
    "https://orders.example/v1/orders?page=2",
    "https://orders.example/v1/orders#top",
    "https://orders.example/v1/orders?a#b?c",
    "https://orders.example/v1/orders?",
    "HTTPS://ORDERS.example/v1/orders",
    "https://orders.example:443/v1/orders",
    "https://orders.example:/v1/orders",
    "https://orders.example:0443/v1/orders",
    "https://orders.example:443:443/v1/orders",
    "https://orders.example::443/v1/orders",
    "https://orders.example::/v1/orders",
    "https://orders.example:x/v1/orders",
    "https://orders.example:80/v1/orders",
    "https://orders.example:8443/v1/orders",
    "http://orders.example/v1/orders",
    "http://orders.example:80/v1/orders",
    "http://orders.example:443/v1/orders",
    "https://orders.example/v1/%6frders",
    "https://orders.example/%76%31/orders",
    "https://orders.example/v1/orders%2F",
    "https://orders.example/v1/orders%2f",
    "https://orders.example/v1%2Forders",
    "https://orders.example/v1/orders%",
    "https://orders.example/v1/orders%zz",
    "https://orders.example/v1/orders%00",
    "https://orders.example/v1/orders%C3%BC",
    "https://orders.example/v1/orders%c3%bc",
    "https://orders.example/v1/ordersü",
    "https://orders.example/v1/orders/",
    "https://orders.example//v1/orders",
    "https://orders.example/v1/./orders",
    "https://orders.example/v1/x/../orders",
    "https://orders.example/v1/%2e/orders",
    "https://orders.example/V1/orders",
    "https://orders.example/v1/orders;a=b",
    "https://orders.example/v1/orders ",
    " https://orders.example/v1/orders",
    "https://orders.example/v1/orders\n",
    "https://orders.example/v1\\orders",
    "https://orders.example\\v1/orders",
    "https://orders.example./v1/orders",
    "https://user@orders.example/v1/orders",
    "https://orders.example@evil.example/v1/orders",
    "https://evil.example/v1/orders",
    "https://evil.example/https://orders.example/v1/orders",
    "https://orders.example",
    "https://orders.example/",
    "https://orders.example?x",
    "https:///v1/orders",
    "https:/orders.example/v1/orders",
    "//orders.example/v1/orders",
    "/v1/orders",
    "ftp://orders.example/v1/orders",
    "https://ordérs.example/v1/orders",
    "https://[2001:db8::1]/v1/orders",
    "https://[2001:DB8::1]:443/v1/orders",
    "https://[2001:db8::1]:/v1/orders",
    "https://[2001:db8::1/v1/orders",
    "https://[2001:db8::1]x/v1/orders",
    "https://2001:db8::1/v1/orders",
    "https://orders.example:443",
    "",
    7,
    None,
    ["https://orders.example/v1/orders"],
]


def another_proof_time(case, g):
    case.proof_claims["iat"] = g.pick(
        [case.now + delta for delta in (-600, -32, -31, -30, -29, 0, 29, 30, 31, 32, 600)]
        + [0, 2**63 - 1, 2**63, -(2**63), str(NOW), NOW + 0.5, Raw("1.8e9"), Raw(f"{NOW}.0"), None]
    )


def another_proof_id(case, g):
    case.proof_claims["jti"] = g.pick(["", "x", 7, None, ["p"], "p" * 500])


def another_token_hash(case, g):
    case.proof_claims["ath"] = g.pick(
        [Absent, encoded(hashlib.sha256(b"another token").digest()), "", "x", 7, None]
        + [hashlib.sha256(b"x").hexdigest()]
    )


def hash_of_another_text(case, g):
    case.token_hash = g.pick(["", "a.b.c", "DPoP a.b.c"])


def another_nonce(case, g):
    case.proof_claims["nonce"] = g.pick(["n-1", "n-2", "", 7, None, ["n-1"], "N-1"])


def without_nonce(case, g):
    case.proof_claims.pop("nonce", None)


def no_proof_claim(case, g):
    case.proof_claims.pop(g.pick(list(case.proof_claims) or [""]), None)


def odd_proof_claim(case, g):
    case.proof_claims[g.pick([*case.proof_claims, "exp", "nbf", "iss"])] = g.pick(ODD)


def expired_proof(case, g):
    # RFC 9449 knows neither; `iat` decides.
    case.proof_claims[g.pick(["exp", "nbf"])] = g.pick([NOW - 100, NOW + 100, "x"])


def other_proof_text(case, g):
    case.rewritten.add("proof_claims")


def other_proof_header(case, g):
    case.rewritten.add("proof_header")


def proof_of_another_key(case, g):
    other = g.pick([one for one in g.mallory + g.holders if one is not case.holder])
    way = g.random.randrange(3)
    if way != 1:
        case.proof_signer = other
    if way != 0:
        case.proof_header["jwk"] = other.jwk()
        case.proof_header["alg"] = other.algorithm()


def another_proof_algorithm(case, g):
    case.proof_header["alg"] = g.pick(
        ["Ed25519", "EdDSA", "ES256", "ES256K", "RS256", "PS256", "HS256", "none", "None", "es256", "", 7, None]
    )


def another_proof_type(case, g):
    case.proof_header["typ"] = g.pick(
        ["dpop+jwt", "DPoP+JWT", "application/dpop+jwt", "JWT", "at+jwt", "aat-pop+jwt", "dpop+jwt ", "", 7, None]
    )


def no_proof_header(case, g):
    case.proof_header.pop(g.pick(list(case.proof_header) or [""]), None)


def another_proof_key(case, g):
    holder, jwk = case.holder, dict(case.holder.required)
    case.proof_header["jwk"] = g.pick(
        [{**jwk, "d": holder.secret()}, {**jwk, "d": None}, {**jwk, "k": "AA"}, {**jwk, "p": ""}, {**jwk, "use": "enc"}]
        + [{**jwk, "use": "sig", "kid": "k", "alg": holder.algorithm()}, {**jwk, "key_ops": ["verify"]}]
        + [{**jwk, "key_ops": ["sign"]}, {**jwk, "alg": "RS256"}, {**jwk, "alg": "ES384"}, {**jwk, "x": jwk["x"][:-1]}]
        + [{**jwk, "x": jwk["x"] + "="}, {**jwk, "x": jwk["x"] + "A"}, {**jwk, "x": "A" + jwk["x"][1:]}, {**jwk, "y": "AA"}]
        + [{**jwk, "kty": "oct", "k": "AA"}, {**jwk, "crv": "P-384"}, {**jwk, "crv": "X25519"}, {**jwk, "kty": "RSA"}]
        + [write(jwk), [jwk], None, {}, 7, {"keys": [jwk]}, {**jwk, "more": [1, {}]}, g.rsa[0].jwk(), {**jwk, "KTY": "x"}]
    )


def keys_elsewhere(case, g):
    case.proof_header.pop("jwk", None)
    case.proof_header[g.pick(["kid", "jku", "x5u", "x5c"])] = "https://evil.example"


def other_proof_header_member(case, g):
    name = g.pick(["crit", "kid", "jku", "x5u", "cty", "b64", "nonce"])
    case.proof_header[name] = g.pick([["b64"], [], "x", 7, None, True])


def change_proof_after_signing(case, g):
    case.proof_after_signing.append(text_change(g))


def no_proof(case, g):
    case.drops_proof = True


TOKEN_MUTATIONS = [
    sign_with_another_key,
    sign_with_another_kind,
    another_key_of_the_issuer,
    another_algorithm,
    rsa_confusion,
    another_salt,
    without_algorithm,
    another_media_type,
    another_media_type,
    without_media_type,
    another_kid,
    without_kid,
    keys_in_the_header,
    critical_header,
    other_header_member,
    other_header_text,
    long_header,
    other_claims_text,
    no_claim,
    odd_claim,
    another_expiry,
    another_lifetime,
    another_issue_time,
    another_begin,
    another_clock,
    another_issuer,
    another_audience,
    another_audience,
    another_subject,
    another_client,
    another_id,
    another_token_of_the_issuer,
    another_confirmation,
    another_confirmation,
    another_actor,
    change_after_signing,
    another_part,
]
GRANT_MUTATIONS = [
    another_scope,
    another_scope,
    another_detail,
    another_detail,
    another_detail,
    another_shape_of_details,
    another_tool,
    other_arguments,
    other_arguments,
    long_token,
]
SETTING_MUTATIONS = [other_algorithms, other_anchors, other_settings, other_keys, other_keys, another_service, another_proof_kind]
PROOF_MUTATIONS = [
    another_method,
    another_uri,
    another_uri,
    another_uri,
    another_request_uri,
    another_request_uri,
    another_proof_time,
    another_proof_time,
    another_proof_id,
    another_token_hash,
    hash_of_another_text,
    another_nonce,
    without_nonce,
    no_proof_claim,
    odd_proof_claim,
    expired_proof,
    other_proof_text,
    other_proof_header,
    proof_of_another_key,
    another_proof_algorithm,
    another_proof_type,
    no_proof_header,
    another_proof_key,
    keys_elsewhere,
    other_proof_header_member,
    change_proof_after_signing,
    no_proof,
]
