"""Access tokens in the filter, and the same algorithms in Envoy's native jwt_authn."""

import hashlib
import json
import subprocess
import time
from pathlib import Path

from . import credence, jwt
from .case import Case
from .envoy import grpc_cluster, wasm_filter
from .jwt import base64url, openssl

ISSUER = "https://idp.example.com"
ORIGIN = "http://service.example"
# How openssl makes keys of them.
ALGORITHMS = {
    "Ed25519": ("-algorithm", "ed25519"),
    "ES256": ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
    "RS256": ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
}
# Nothing is remembered, so that every request costs a signature.
UNCACHED = {"cache_entries": 0, "shared_cache_entries": 0, "repeat_entries": 0, "refused_entries": 0}


class TokenKey:
    """A key of an identity provider, made and used with openssl, so that no Python package is needed."""

    def __init__(self, algorithm: str, scratch: Path):
        self.algorithm = algorithm
        self._scratch = scratch
        self._key = scratch / f"{algorithm}.pem"
        openssl("genpkey", "-quiet", *ALGORITHMS[algorithm], "-out", self._key)

    def public_jwk(self) -> dict:
        der = openssl("pkey", "-in", self._key, "-pubout", "-outform", "DER")
        if self.algorithm == "Ed25519":
            own = {"kty": "OKP", "crv": "Ed25519", "x": base64url(der[-32:])}
        elif self.algorithm == "ES256":
            own = {"kty": "EC", "crv": "P-256", "x": base64url(der[-64:-32]), "y": base64url(der[-32:])}
        else:
            modulus = openssl("rsa", "-in", self._key, "-noout", "-modulus").decode().strip().removeprefix("Modulus=")
            own = {"kty": "RSA", "n": base64url(bytes.fromhex(modulus)), "e": "AQAB"}
        return own | {"kid": "bench"}

    def token(self, confirmation: dict | None = None) -> str:
        now = int(time.time())
        header = {"alg": self.algorithm, "typ": "at+jwt", "kid": "bench"}
        claims = {
            **{"iss": ISSUER, "aud": credence.AUDIENCE, "sub": "alice", "client_id": "planner", "jti": "bench-token"},
            **{"iat": now, "exp": now + jwt.LIFETIME_SECONDS, "scope": "openid catalog"},
            **({"cnf": confirmation} if confirmation else {}),
        }
        text = ".".join(base64url(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
        return f"{text}.{base64url(self._signature(text))}"

    def _signature(self, text: str) -> bytes:
        message = self._scratch / "token-message"  # openssl signs with Ed25519 only from a file
        message.write_text(text)
        if self.algorithm == "Ed25519":
            return openssl("pkeyutl", "-sign", "-rawin", "-inkey", self._key, "-in", message)
        signature = openssl("dgst", "-sha256", "-sign", self._key, message)
        return raw_ecdsa(signature) if self.algorithm == "ES256" else signature


def raw_ecdsa(der: bytes) -> bytes:
    """r and s in 32 bytes each (RFC 7518, section 3.4), from a DER sequence of two integers."""
    numbers, place = [], 2
    for _ in range(2):
        length = der[place + 1]
        numbers.append(int.from_bytes(der[place + 2 : place + 2 + length], "big"))
        place += 2 + length
    return b"".join(number.to_bytes(32, "big") for number in numbers)


def cases(tool: credence.Tool, plane: credence.ControlPlane, module: Path, prover: Path, scratch: Path) -> list[Case]:
    """Tokens that are known, tokens with a new DPoP proof each time, and an RSA signature each time; with jwt_authn's own
    time for the same algorithms."""
    keys = {algorithm: TokenKey(algorithm, scratch) for algorithm in ALGORITHMS}

    def case(name: str, key: TokenKey, proof: str, limits: dict | None = None, **more) -> Case:
        own_name = f"credence_{name}"
        settings = credence.configuration({}, own_name, plane.log_id, limits or {})
        settings["holder_algorithms"] = ["Ed25519", "ES256"]
        settings["trust_anchors"] = [
            {
                "issuer": ISSUER,
                "jwks": {"keys": [key.public_jwk()]},
                "algorithms": [key.algorithm],
                "asserts_subjects": True,
                "access_tokens": {"scopes": {"catalog": {credence.TOOL: {}}}},
            }
        ]
        origins = {"origins": [ORIGIN]} if proof == "dpop" else {}
        for rule in settings["rules"]:
            rule["authorization"] = {"proof": proof, **origins}
        return Case(
            name,
            filters=[wasm_filter(own_name, module, settings)],
            path=f"/v1/catalog/{credence.ITEM}",
            status_without_headers=401,
            clusters=[grpc_cluster(own_name, plane.grpc_port)],
            **more,
        )

    def bearer(token: str) -> dict:
        return {"authorization": f"Bearer {token}"}

    def proven(name: str, algorithm: str) -> Case:
        holders = [scratch / f"{name}-{number}.jwk" for number in range(credence.AGENTS)]
        confirmed = [{"jkt": thumbprint(tool.keygen(holder, algorithm))} for holder in holders]
        tokens = [keys["Ed25519"].token(confirmation=confirmation) for confirmation in confirmed]

        def proofs(count: int) -> list[tuple[str, ...]]:
            # By several holders in turn: the memory of used proofs holds about a thousand a second for each.
            by_holder = [
                [(f"DPoP {token}", proof) for proof in prove(prover, token, holder, -(-count // credence.AGENTS))]
                for token, holder in zip(tokens, holders, strict=True)
            ]
            return [request for turn in zip(*by_holder, strict=True) for request in turn]

        return case(name, keys["Ed25519"], "dpop", changing=("authorization", "dpop"), make=proofs, good_for_seconds=20)

    another = {"changing": (":path",), "make": credence.catalog_paths, "distinct": credence.DISTINCT}
    return [
        # Another request with a known token.
        case("oauth_hot", keys["Ed25519"], "none", headers=bearer(keys["Ed25519"].token()), **another),
        # A known token and a new proof.
        proven("dpop_ed25519", "Ed25519"),
        proven("dpop_es256", "ES256"),
        # A token that is verified each time.
        case("rs256_cold", keys["RS256"], "none", limits=UNCACHED, headers=bearer(keys["RS256"].token())),
        *(native(f"jwt_{algorithm.lower()}", keys[algorithm]) for algorithm in ("ES256", "RS256")),
    ]


def native(name: str, key: TokenKey) -> Case:
    """jwt_authn, which verifies the token each time."""
    provider = {
        "issuer": ISSUER,
        "audiences": [credence.AUDIENCE],
        "local_jwks": {"inline_string": json.dumps({"keys": [key.public_jwk() | {"alg": key.algorithm}]})},
    }
    settings = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
        "providers": {"bench": provider},
        "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "bench"}}],
    }
    headers = {"authorization": f"Bearer {key.token()}"}
    return Case(name, filters=[{"name": "jwt_authn", "typed_config": settings}], headers=headers, status_without_headers=401)


def prove(prover: Path, token: str, holder: Path, count: int) -> list[str]:
    uri = f"{ORIGIN}/v1/catalog/{credence.ITEM}"
    arguments = ("--key", holder, "--token", token, "--uri", uri, "--count", count)
    outcome = subprocess.run([prover, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True)
    return outcome.stdout.splitlines()


def thumbprint(jwk: dict) -> str:
    """RFC 7638."""
    members = {name: jwk[name] for name in ("crv", "kty", "x", "y") if name in jwk}
    text = json.dumps(members, separators=(",", ":"), sort_keys=True)
    return base64url(hashlib.sha256(text.encode()).digest())
