"""The peer: Envoy's native jwt_authn, verifying an Ed25519 JWT."""

import base64
import json
import subprocess
import time
from pathlib import Path

from .case import Case

ISSUER = "https://id.example.com"
AUDIENCE = "https://payments.example"
# Only the authorizer reads it.
SCOPE = "catalog.read"
LIFETIME_SECONDS = 3600
# An Ed25519 public key in DER (RFC 8410) ends with the key itself.
PUBLIC_KEY_BYTES = 32


class SigningKey:
    """A new Ed25519 key. It uses openssl, so that no Python package is needed."""

    def __init__(self, scratch: Path):
        self._scratch = scratch
        self._key = scratch / "jwt-key.pem"
        openssl("genpkey", "-algorithm", "ed25519", "-out", self._key)

    def public_jwks(self) -> str:
        return json.dumps({"keys": [self._public_jwk()]})

    def _public_jwk(self) -> dict:
        der = openssl("pkey", "-in", self._key, "-pubout", "-outform", "DER")
        return {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "bench", "x": base64url(der[-PUBLIC_KEY_BYTES:])}

    def sign_token(self) -> str:
        now = int(time.time())
        header = {"alg": "EdDSA", "typ": "JWT", "kid": "bench"}
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + LIFETIME_SECONDS, "scope": SCOPE}
        text = ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))
        message = self._scratch / "jwt-message"  # openssl signs with Ed25519 only from a file
        message.write_text(text)
        signature = openssl("pkeyutl", "-sign", "-rawin", "-inkey", self._key, "-in", message)
        return f"{text}.{base64url(signature)}"


def cases(key: SigningKey) -> list[Case]:
    """jwt_authn verifies one Ed25519 signature, or has it in its cache."""
    headers = {"authorization": f"Bearer {key.sign_token()}"}
    return [
        Case(name, filters=[authn_filter(key, cached)], headers=headers, status_without_headers=401)
        for name, cached in (("jwt_cached", True), ("jwt_cold", False))
    ]


def authn_filter(key: SigningKey, cached: bool) -> dict:
    provider = {
        "issuer": ISSUER,
        "audiences": [AUDIENCE],
        "local_jwks": {"inline_string": key.public_jwks()},
    }
    if cached:
        provider["jwt_cache_config"] = {"jwt_cache_size": 1000}
    rule = {"match": {"prefix": "/"}, "requires": {"provider_name": "bench"}}
    return {
        "name": "jwt_authn",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": {"bench": provider},
            "rules": [rule],
        },
    }


def openssl(*arguments: object) -> bytes:
    return subprocess.run(["openssl", *map(str, arguments)], check=True, stdout=subprocess.PIPE).stdout


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
