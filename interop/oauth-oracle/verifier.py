"""A second verifier of access tokens and DPoP proofs, for comparison with `credence verify --jsonl`.

It is written from RFC 7515, 7517, 7518, 7519, 7638, 8693, 8705, 8725, 9068, 9396 and 9449, and from the settings' own
documentation (docs/start/oauth.md, docs/reference/configuration.md, docs/reference/limits.md), not from Credence's code.
Signatures are verified by the `cryptography` package, which uses OpenSSL. A comment marked PROFILE names a place where the
RFCs leave a choice and Credence documents one.
"""

import base64
import hashlib
import json
import re
from decimal import Decimal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

# PROFILE: docs/reference/limits.md.
CLOCK_SKEW = 30
PROOF_WINDOW = 30
MAX_LIFETIME = 90 * 24 * 60 * 60
MAX_TOKEN = 65_536
MAX_HEADER = 4_096
MAX_DEPTH = 80
MAX_ACTORS = 8

KINDS = {
    "RS256": "RSA",
    "PS256": "RSA",
    "ES256": "P-256",
    "ES256K": "secp256k1",
    "EdDSA": "Ed25519",
    "Ed25519": "Ed25519",
}
OF_ACCESS_TOKENS = ("Ed25519", "EdDSA", "ES256", "RS256", "PS256")
# PROFILE: how many of an issuer's keys are tried for a token that names none of them.
TRIED = {"RSA": 1, "P-256": 1, "secp256k1": 1, "Ed25519": 2}


class Denied(Exception):
    """A check failed. The text is for people."""


class Unusable(Exception):
    """A key, or an anchor's settings."""


def require(holds, why):
    if not holds:
        raise Denied(why)


# === JSON ===


class Number:
    """A JSON number as written: a float would lose digits."""

    def __init__(self, text):
        self.text = text

    def whole(self):
        """PROFILE: a NumericDate has no fraction and no exponent."""
        return int(self.text) if re.fullmatch(r"-?\d{1,19}", self.text) else None


def strict(text):
    """One JSON text without repeated names (RFC 8725, section 2.4), lone surrogates, or too many levels."""

    def members(pairs):
        names = dict(pairs)
        if len(names) != len(pairs):
            raise ValueError("a repeated name")
        return names

    def constant(name):
        raise ValueError(name)

    if isinstance(text, bytes):
        text = text.decode("utf-8")
    parsed = json.loads(
        text, object_pairs_hook=members, parse_int=Number, parse_float=Number, parse_constant=constant
    )
    check_nesting(parsed, MAX_DEPTH)
    return parsed


def check_nesting(value, levels):
    if isinstance(value, str):
        value.encode("utf-8")
    elif isinstance(value, (dict, list)):
        if levels == 0:
            raise ValueError("too deep")
        for inner in value.values() if isinstance(value, dict) else value:
            check_nesting(inner, levels - 1)
        if isinstance(value, dict):
            for name in value:
                name.encode("utf-8")


class Inexact(Exception):
    """A number that a double cannot keep (RFC 8785)."""


def comparable(value):
    """A form in which two values are equal if they are the same JSON value."""
    if isinstance(value, Number):
        double = float(value.text)
        if double in (float("inf"), float("-inf")) or Decimal(repr(double)) != Decimal(value.text):
            raise Inexact(value.text)
        return ("number", double + 0.0)
    if isinstance(value, bool) or value is None:
        return ("literal", value)
    if isinstance(value, str):
        return ("string", value)
    if isinstance(value, list):
        return ("array", tuple(comparable(inner) for inner in value))
    return ("object", tuple(sorted((name, comparable(inner)) for name, inner in value.items())))


def base64url(text):
    """Decodes without padding. PROFILE: bytes have one encoding, so unused bits are zero."""
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9_-]*", text) or len(text) % 4 == 1:
        return None
    decoded = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return decoded if encoded(decoded) == text else None


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


# === Keys ===


class Key:
    def __init__(self, kind, public, thumbprint, name):
        self.kind, self.public, self.thumbprint, self.name = kind, public, thumbprint, name

    def verifies(self, algorithm, message, signature):
        try:
            if self.kind == "Ed25519":
                self.public.verify(signature, message)
            elif self.kind == "RSA":
                # RFC 7518, section 3.5: the salt of PS256 is as long as the hash.
                scheme = (
                    padding.PKCS1v15()
                    if algorithm == "RS256"
                    else padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)
                )
                self.public.verify(signature, message, scheme, hashes.SHA256())
            else:
                if len(signature) != 64:
                    return False
                r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
                self.public.verify(encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError):
            return False
        return True


class OtherKey(Unusable):
    """A key of a set for another purpose or of an unknown kind: the others of the set still count."""


def read_key(jwk, with_rsa):
    """A public JWK (RFC 7517, section 4; RFC 7518, section 6; RFC 8037)."""
    if not isinstance(jwk, dict):
        raise Unusable("not an object")
    if {"d", "p", "q", "dp", "dq", "qi", "oth", "k"} & jwk.keys():
        raise Unusable("private")
    kty, crv = jwk.get("kty"), jwk.get("crv")
    if not isinstance(kty, str):
        raise Unusable("no kty")

    def data(name, length=None):
        value = base64url(jwk.get(name))
        if value is None or (length and len(value) != length):
            raise Unusable(name)
        return value

    if kty == "RSA" and with_rsa:
        modulus, exponent = data("n"), data("e")
        bits = int.from_bytes(modulus).bit_length()
        # RFC 7518, sections 2 and 3.3. PROFILE: the exponent, and at most 4096 bits.
        if exponent != b"\1\0\1" or modulus[:1] == b"\0" or not 2048 <= bits <= 4096 or modulus[-1] % 2 == 0:
            raise Unusable("RSA")
        required = {"e": jwk["e"], "kty": kty, "n": jwk["n"]}
        public = rsa.RSAPublicNumbers(65537, int.from_bytes(modulus)).public_key()
        kind = "RSA"
    elif (kty, crv) == ("OKP", "Ed25519"):
        public = ed25519.Ed25519PublicKey.from_public_bytes(data("x", 32))
        required = {"crv": crv, "kty": kty, "x": jwk["x"]}
        kind = crv
    elif kty == "EC" and crv in ("P-256", "secp256k1"):
        curve = ec.SECP256R1() if crv == "P-256" else ec.SECP256K1()
        x, y = int.from_bytes(data("x", 32)), int.from_bytes(data("y", 32))
        try:
            public = ec.EllipticCurvePublicNumbers(x, y, curve).public_key()
        except ValueError as error:
            raise Unusable("not on the curve") from error
        required = {"crv": crv, "kty": kty, "x": jwk["x"], "y": jwk["y"]}
        kind = crv
    else:
        raise OtherKey("an unknown kind")
    if "use" in jwk and jwk["use"] != "sig":
        raise OtherKey("use")
    if "key_ops" in jwk and not (isinstance(jwk["key_ops"], list) and "verify" in jwk["key_ops"]):
        raise OtherKey("key_ops")
    if "alg" in jwk and (not isinstance(jwk["alg"], str) or KINDS.get(jwk["alg"]) != kind):
        raise OtherKey("alg")
    # RFC 7638, section 3.
    text = json.dumps(required, separators=(",", ":"), sort_keys=True)
    return Key(kind, public, hashlib.sha256(text.encode()).digest(), None)


def read_set(jwks):
    keys = []
    if not isinstance(jwks, dict) or not isinstance(jwks.get("keys"), list):
        raise Unusable("not a set")
    for jwk in jwks["keys"]:
        try:
            key = read_key(jwk, with_rsa=True)
        except OtherKey:
            continue
        if "kid" in jwk:
            if not isinstance(jwk["kid"], str) or not jwk["kid"]:
                raise Unusable("kid")
            key.name = jwk["kid"]
        keys.append(key)
    names = [key.name for key in keys if key.name is not None]
    if not keys or len(set(names)) != len(names) or len({key.thumbprint for key in keys}) != len(keys):
        raise Unusable("no key, or one twice")
    return keys


# === Constraints (draft-niyikiza-oauth-attenuating-agent-tokens-02, section 3.4) ===


def satisfies(constraint, value):
    """Whether the value is within the constraint, which is well-formed."""
    kind = constraint["constraint_type"]
    if kind == "wildcard":
        return True
    if kind == "exact":
        return value == comparable(constraint["value"])
    if kind == "range":
        if value[0] != "number":
            return False
        number, inside = value[1], True
        if "min" in constraint:
            least = comparable(constraint["min"])[1]
            inside &= number > least or (number == least and constraint.get("min_inclusive", True))
        if "max" in constraint:
            most = comparable(constraint["max"])[1]
            inside &= number < most or (number == most and constraint.get("max_inclusive", True))
        return inside
    if kind == "one_of":
        return value in [comparable(one) for one in constraint["values"]]
    if kind == "not_one_of":
        return value not in [comparable(one) for one in constraint["excluded"]]
    if kind == "contains":
        return value[0] == "array" and all(comparable(one) in value[1] for one in constraint["required"])
    if kind == "subset":
        return value[0] == "array" and set(value[1]) <= {comparable(one) for one in constraint["allowed"]}
    clauses = [satisfies(clause, value) for clause in constraint["constraints"]]
    return all(clauses) if kind == "all" else any(clauses)


MEMBERS = {
    "wildcard": (set(), set()),
    "exact": ({"value"}, set()),
    "range": (set(), {"min", "max", "min_inclusive", "max_inclusive"}),
    "one_of": ({"values"}, set()),
    "not_one_of": ({"excluded"}, set()),
    "contains": ({"required"}, set()),
    "subset": ({"allowed"}, set()),
    "all": ({"constraints"}, set()),
    "any": ({"constraints"}, set()),
}


def is_constraint(constraint, is_entry=True):
    """Whether the constraint is well-formed."""
    if not isinstance(constraint, dict) or constraint.get("constraint_type") not in MEMBERS:
        return False
    kind = constraint["constraint_type"]
    needed, possible = MEMBERS[kind]
    names = constraint.keys() - {"constraint_type"}
    if is_entry:
        names -= {"optional"}
        if not isinstance(constraint.get("optional", False), bool):
            return False
    if not needed <= names or not names <= needed | possible:
        return False
    try:
        if kind == "exact":
            comparable(constraint["value"])
            return not isinstance(constraint["value"], (dict, list))
        if kind == "range":
            for bound in ("min", "max"):
                if bound in constraint:
                    if not isinstance(constraint[bound], Number):
                        return False
                    comparable(constraint[bound])
                elif bound + "_inclusive" in constraint:
                    return False
                if not isinstance(constraint.get(bound + "_inclusive", True), bool):
                    return False
            both = "min" in constraint and "max" in constraint
            return not both or comparable(constraint["min"])[1] <= comparable(constraint["max"])[1]
        if kind in ("all", "any"):
            clauses = constraint["constraints"]
            return isinstance(clauses, list) and bool(clauses) and all(is_constraint(one, False) for one in clauses)
        if kind == "wildcard":
            return True
        (name,) = needed
        values = constraint[name]
        if not isinstance(values, list) or (kind == "one_of" and not values):
            return False
        [comparable(one) for one in values]
        return True
    except Inexact:
        return False


def are_tools(tools):
    """Whether these are the `tools` of a delegation (section 3.3)."""
    if not isinstance(tools, dict) or not all(isinstance(entries, dict) for entries in tools.values()):
        return False
    for entries in tools.values():
        for name, constraint in entries.items():
            if not is_constraint(constraint):
                return False
            if name == "*" and constraint != {"constraint_type": "wildcard"}:
                return False
    return True


def permits(entries, arguments):
    """Whether these constraints permit the arguments, in a closed world (section 3.3)."""
    is_open = not entries or "*" in entries
    for name, value in arguments.items():
        if name in entries and name != "*":
            if not satisfies(entries[name], comparable(value)):
                return False
        elif not is_open:
            return False
    needed = [name for name, one in entries.items() if name != "*" and not one.get("optional", False)]
    return all(name in arguments for name in needed)


# === What access tokens grant (docs/start/oauth.md) ===


class Settings:
    """`access_tokens` of a trust anchor."""

    def __init__(self, given):
        known = {"typ", "scope_claim", "scopes", "authorization_details", "delegation_depth"}
        if not isinstance(given, dict) or not given.keys() <= known:
            raise Unusable("settings")
        self.untyped = given.get("typ", "at+jwt") == "JWT"
        self.claim = given.get("scope_claim", "scope")
        self.scopes = given.get("scopes", {})
        self.types = given.get("authorization_details", {})
        if given.get("typ", "at+jwt") not in ("at+jwt", "JWT") or self.claim not in ("scope", "scp", "roles"):
            raise Unusable("settings")
        # RFC 6749, section 3.3: scope-token.
        if not all(re.fullmatch(r"[!#-\[\]-~]+", scope) for scope in self.scopes):
            raise Unusable("a scope's name")
        if not all(tools and are_tools(tools) for tools in self.scopes.values()):
            raise Unusable("settings")

    def granted(self, claims):
        """The grants of a token: a list of `tools`, of which each suffices."""
        scopes = claims.get(self.claim, "")
        if isinstance(scopes, str):
            scopes = scopes.split(" ")
        if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
            raise Denied("scopes")
        grants = [self.scopes[scope] for scope in scopes if scope in self.scopes]
        details = claims.get("authorization_details", [])
        require(isinstance(details, list), "authorization_details")
        require(all(isinstance(detail, dict) for detail in details), "authorization_details")
        own = [detail for detail in details if detail.get("type") == "attenuating_agent_token"]
        # The draft, section 3.3: at most one entry of its type, and it must be well-formed.
        require(len(own) <= 1, "two entries of the draft's type")
        for detail in own:
            require(are_tools(detail.get("tools")), "tools")
            grants.append(detail["tools"])
        for detail in details:
            if isinstance(detail.get("type"), str) and detail["type"] in self.types:
                grants.extend(self.by_template(detail, self.types[detail["type"]]))
        return grants

    def by_template(self, detail, kind):
        template, requires = kind["tools"], kind.get("requires", {})
        known = {"/type", *requires, *kind.get("ignore", [])}
        known.update(pointers(template))
        for pointer, constraint in requires.items():
            try:
                if not satisfies(constraint, comparable(at(detail, pointer))):
                    return
            except (Missing, Inexact):
                return
        if not only_known(detail, "", known):
            return
        try:
            tools = filled(template, detail)
        except Missing:
            return
        # The issuer has signed an entry of this type that its template cannot express: the token is malformed.
        require(are_tools(tools), "an entry does not fit its template")
        yield tools


class Missing(Exception):
    """The entry has no such value."""


def reference(template):
    if isinstance(template, dict) and len(template) == 1:
        ((name, pointer),) = template.items()
        if name in ("from", "number_from") and isinstance(pointer, str):
            return name, pointer
    return None


def pointers(template):
    if reference(template):
        yield reference(template)[1]
    elif isinstance(template, (dict, list)):
        for inner in template.values() if isinstance(template, dict) else template:
            yield from pointers(inner)


def at(detail, pointer):
    """RFC 6901, from object to object."""
    value = detail
    for name in pointer.split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, dict) or name not in value:
            raise Missing(pointer)
        value = value[name]
    return value


def only_known(value, pointer, known):
    """A member that nothing names may be a limit, so the entry then grants nothing."""
    for name, inner in value.items():
        place = pointer + "/" + name.replace("~", "~0").replace("/", "~1")
        if place in known:
            continue
        if not isinstance(inner, dict) or not inner or not only_known(inner, place, known):
            return False
    return True


JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def filled(template, detail):
    taken = reference(template)
    if taken:
        value = at(detail, taken[1])
        if taken[0] == "from":
            return value
        if not isinstance(value, str) or not JSON_NUMBER.fullmatch(value):
            raise Missing(taken[1])
        return Number(value)
    if isinstance(template, dict):
        return {name: filled(inner, detail) for name, inner in template.items()}
    if isinstance(template, list):
        return [filled(inner, detail) for inner in template]
    return template


# === Tokens and proofs ===


class Jws:
    """A compact JWS with strict JSON in both parts, its signature not verified (RFC 7515)."""

    def __init__(self, compact):
        require(isinstance(compact, str) and len(compact) <= MAX_TOKEN, "size")
        parts = compact.split(".")
        require(len(parts) == 3 and len(parts[0]) <= MAX_HEADER, "form")
        decoded = [base64url(part) for part in parts]
        require(None not in decoded, "base64url")
        self.message = f"{parts[0]}.{parts[1]}".encode("ascii")
        self.signature = decoded[2]
        try:
            self.header, self.claims = strict(decoded[0]), strict(decoded[1])
        except (ValueError, RecursionError) as error:
            raise Denied("JSON") from error
        require(isinstance(self.header, dict) and isinstance(self.claims, dict), "not objects")
        # RFC 7515, section 4.1.11: no extension is understood, and an empty list is forbidden.
        require("crit" not in self.header, "crit")
        self.algorithm = self.header.get("alg")
        require(isinstance(self.algorithm, str) and self.algorithm in KINDS, "alg")
        self.kid = self.header.get("kid")
        require("kid" not in self.header or isinstance(self.kid, str), "kid")

    def whole(self, name):
        value = self.claims.get(name)
        number = value.whole() if isinstance(value, Number) else None
        require(number is not None and -(2**63) <= number < 2**63, name)
        return number

    def text(self, name):
        value = self.claims.get(name)
        require(isinstance(value, str) and value, name)
        return value


def media_type(header):
    """RFC 7515, section 4.1.9: without case, and `application/` may be left out."""
    typ = header.get("typ", "JWT")
    require(isinstance(typ, str), "typ")
    typ = typ.lower()
    # str.lower knows more letters than ASCII; a media type has none of them.
    require(typ.isascii(), "typ")
    return typ if "/" in typ else "application/" + typ


class Anchor:
    def __init__(self, given, algorithms):
        if not given.keys() <= {"iss", "jwk", "jwks", "access_tokens"}:
            raise Unusable("members")
        self.issuer = given["iss"]
        self.settings = Settings(given["access_tokens"])
        self.keys = read_set(given["jwks"]) if "jwks" in given else [read_key(given["jwk"], with_rsa=True)]
        self.algorithms = {name for name in algorithms if name in OF_ACCESS_TOKENS}
        # A configuration with a key that can never verify, or with keys that no token can select, is refused.
        kinds = {KINDS[name] for name in self.algorithms}
        if any(key.kind not in kinds for key in self.keys):
            raise Unusable("a key fits no algorithm")
        for kind in kinds:
            if sum(key.kind == kind and key.name is None for key in self.keys) > TRIED[kind]:
                raise Unusable("keys without names")


def verified(case, anchors, now):
    """The claims of the access token, and its grants (RFC 9068, section 4; RFC 8725, section 3)."""
    require(len(case["chain"]) == 1, "one token")
    token = Jws(case["chain"][0])
    anchor = anchors.get(token.claims.get("iss")) if isinstance(token.claims.get("iss"), str) else None
    require(anchor is not None, "iss")
    kind = media_type(token.header)
    is_typed = kind == "application/at+jwt"
    require(is_typed or (kind == "application/jwt" and anchor.settings.untyped), "typ")
    # RFC 8725, sections 3.1 and 3.2: the algorithm is ours, and fits the key. Keys in the header do not count.
    require(token.algorithm in anchor.algorithms, "alg")
    keys = [key for key in anchor.keys if key.kind == KINDS[token.algorithm]]
    if token.kid is not None:
        named = [key for key in keys if key.name == token.kid]
        keys = named or [key for key in keys if key.name is None]
    require(0 < len(keys) <= TRIED[KINDS[token.algorithm]], "kid")
    is_signed = any(key.verifies(token.algorithm, token.message, token.signature) for key in keys)
    require(is_signed, "signature")

    issued, expires = token.whole("iat"), token.whole("exp")
    require(now < expires, "exp")
    require(issued <= now + CLOCK_SKEW, "iat")
    require(issued < expires <= issued + MAX_LIFETIME, "lifetime")
    if "nbf" in token.claims:
        require(token.whole("nbf") <= now + CLOCK_SKEW, "nbf")
    if is_typed:
        # RFC 9068, section 2.2: required.
        token.text("jti")
        require(isinstance(token.claims.get("client_id"), str), "client_id")
        require(isinstance(token.claims.get("sub"), str), "sub")
    else:
        # RFC 8725, section 3.12: an ID token or a refresh token of the same issuer is none. The names are those of OpenID
        # Connect Core (sections 2 and 3.3.2.11), Keycloak (`typ`) and Cognito (`token_use`).
        require(not {"nonce", "at_hash", "c_hash", "s_hash", "events"} & token.claims.keys(), "an ID or logout token")
        for name, ours in (("typ", ("bearer", "dpop")), ("token_use", ("access",))):
            value = token.claims.get(name, ours[0])
            require(isinstance(value, str) and value.isascii() and value.lower() in ours, name)
        if "jti" in token.claims:
            token.text("jti")
    audience = token.claims.get("aud")
    audience = [audience] if isinstance(audience, str) else audience
    require(isinstance(audience, list) and all(isinstance(one, str) for one in audience), "aud")
    require(set(audience) & set(case["audience"]), "aud")
    actor, depth = token.claims.get("act"), 0
    if "act" in token.claims:
        while True:
            # RFC 8693, section 4.1. PROFILE: each actor has a `sub`; at most eight.
            depth += 1
            require(isinstance(actor, dict) and depth <= MAX_ACTORS, "act")
            require(isinstance(actor.get("sub"), str) and actor["sub"], "act")
            if "act" not in actor:
                break
            actor = actor["act"]
    return token, anchor.settings.granted(token.claims)


def confirmation(claims):
    """The thumbprint of the holder's key, and the digest of its certificate (RFC 7800; RFC 9449, 6.1; RFC 8705, 3.1)."""
    if "cnf" not in claims:
        return None, None
    cnf = claims["cnf"]
    require(isinstance(cnf, dict), "cnf")

    def digest(name):
        if name not in cnf:
            return None
        value = base64url(cnf[name])
        require(value is not None and len(value) == 32, name)
        return value

    thumbprint, certificate = digest("jkt"), digest("x5t#S256")
    if "jwk" in cnf:
        try:
            key = read_key(cnf["jwk"], with_rsa=False)
        except Unusable as error:
            raise Denied("cnf.jwk") from error
        # Two confirmations of different keys have no meaning.
        require(thumbprint in (None, key.thumbprint), "cnf names two keys")
        thumbprint = key.thumbprint
    # PROFILE: a confirmation in an unknown way must not make the token a bearer token.
    require(thumbprint or certificate, "cnf")
    return thumbprint, certificate


def normalized(uri):
    """RFC 9449, section 4.3, check 9: RFC 3986, sections 6.2.2 and 6.2.3, without query and fragment.

    PROFILE: dot segments are not resolved and hosts not decoded. Such a URI then equals no other.
    """
    if not isinstance(uri, str):
        return None
    parts = re.fullmatch(r"([A-Za-z]+)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", uri, re.DOTALL)
    if not parts or parts[1].lower() not in ("http", "https"):
        return None
    scheme, path = parts[1].lower(), parts[3] or "/"
    # RFC 3986, section 3.2. User information is not allowed in an http URI (RFC 9110, section 4.2.4).
    authority = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]+)(?::([0-9]*))?", parts[2])
    if not authority:
        return None
    port = authority[2] or None
    if port == {"http": "80", "https": "443"}[scheme]:
        port = None
    if not re.fullmatch(r"(?:[!-$&-~]|%[0-9A-Fa-f]{2})*", path):
        return None

    def escape(found):
        character = chr(int(found[0][1:], 16))
        return character if re.fullmatch(r"[A-Za-z0-9._~-]", character) else found[0].upper()

    return scheme, authority[1].lower(), port, re.sub(r"%[0-9A-Fa-f]{2}", escape, path)


def check_proof(case, thumbprint, algorithms, now):
    """RFC 9449, section 4.3, in its order."""
    proof = Jws(case.get("proof"))
    for name in ("jti", "htm", "htu", "ath"):
        proof.text(name)
    issued = proof.whole("iat")
    # The RFC gives this exact value, other than RFC 9068, which refers to the media type.
    require(proof.header.get("typ") == "dpop+jwt", "typ")
    require(proof.algorithm in algorithms, "alg")
    try:
        key = read_key(proof.header.get("jwk"), with_rsa=False)
    except Unusable as error:
        raise Denied("jwk") from error
    require(key.kind == KINDS[proof.algorithm], "alg")
    require(key.verifies(proof.algorithm, proof.message, proof.signature), "signature")
    require(proof.claims["htm"] == case["method"], "htm")
    uri = normalized(proof.claims["htu"])
    require(uri is not None and uri == normalized(case["uri"]), "htu")
    if "nonce" in case["policy"]:
        require(proof.claims.get("nonce") == case["policy"]["nonce"], "nonce")
    require(abs(issued - now) <= PROOF_WINDOW, "iat")
    token_hash = hashlib.sha256(case["chain"][0].encode("ascii")).digest()
    require(proof.claims["ath"] == encoded(token_hash), "ath")
    require(key.thumbprint == thumbprint, "jkt")


def decide(line):
    """Whether the case is allowed, and why not."""
    case = strict(line)
    try:
        now, policy = case["now"].whole(), case["policy"]
        anchors = {}
        for given in case["anchors"]:
            try:
                anchors[given["iss"]] = Anchor(given, policy["algs"])
            except Unusable:
                continue
        token, grants = verified(case, anchors, now)
        thumbprint, certificate = confirmation(token.claims)
        try:
            # PROFILE: draft section 3.4. An argument that no constraint looks at must be exact, too.
            comparable(case["args"])
        except Inexact as error:
            raise Denied("an argument's number") from error
        is_granted = any(case["tool"] in tools and permits(tools[case["tool"]], case["args"]) for tools in grants)
        require(is_granted, "the tool or its arguments")
        if policy["proof"] == "none":
            # RFC 9449, section 7.2: a bound token is no bearer token.
            require(not thumbprint and not certificate, "bound")
        else:
            require(thumbprint is not None, "not bound to a key")
            check_proof(case, thumbprint, set(policy["algs"]), now)
    except Denied as denied:
        return False, str(denied)
    return True, ""
