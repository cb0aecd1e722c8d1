"""The claims of tokens and proofs (draft-niyikiza-oauth-attenuating-agent-tokens-02), and their hashes."""

import hashlib
import json
import time
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode

TOKEN, PROOF = "aat+jwt", "aat-pop+jwt"


def root(issuer, holder, tools):
    return _grant(holder, tools, depth=0, max_depth=2) | {"iss": issuer}


def derived(parent, signer, holder, tools):
    """Section 6.2: signed by the parent's holder, named by the key's thumbprint, and bound to the parent by its
    hash."""
    outer = _decode(parent.split(".")[1])
    claims = _grant(holder, tools, depth=outer["del_depth"] + 1, max_depth=outer["del_max_depth"])
    return claims | {"iss": _thumbprint_uri(signer), "exp": outer["exp"], "par_hash": _token_hash(parent)}


def proof(leaf, tool, arguments, audience):
    """Section 7: one use of the leaf, by its holder."""
    return {
        "jti": str(uuid.uuid4()),
        "iat": int(time.time()),
        "aat_id": _decode(leaf.split(".")[1])["jti"],
        "aat_hash": _token_hash(leaf),
        "aat_tool": tool,
        "aat_aud": audience,
        "hta": arguments,
    }


def with_more_time(token):
    """The same token with another `exp` and the same signature."""
    header, payload, signature = token.split(".")
    claims = _decode(payload)
    claims["exp"] += 1
    return ".".join([header, _base64url(json.dumps(claims).encode()), signature])


def public(jwk):
    """Only the members that a key of its kind requires (RFC 7638). None of them is private."""
    return {name: jwk[name] for name in ("crv", "kty", "x", "y") if name in jwk}


def _grant(holder, tools, depth, max_depth):
    now = int(time.time())
    return {
        "jti": str(uuid.uuid4()),
        "iat": now,
        "exp": now + 600,
        "cnf": {"jwk": public(holder)},
        "del_depth": depth,
        "del_max_depth": max_depth,
        "authorization_details": [{"type": "attenuating_agent_token", "tools": tools}],
    }


def _token_hash(token):
    """Section 4.6: of the JWS signing input, which is everything before the signature."""
    return _sha256(token.rpartition(".")[0])


def _thumbprint_uri(jwk):
    """RFC 9278."""
    canonical = json.dumps(public(jwk), sort_keys=True, separators=(",", ":"))
    return f"urn:ietf:params:oauth:jwk-thumbprint:sha-256:{_sha256(canonical)}"


def _sha256(text):
    return _base64url(hashlib.sha256(text.encode()).digest())


def _base64url(data):
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(part):
    return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
