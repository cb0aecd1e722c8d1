"""Root tokens for tests, made with a JOSE library alone. The package does not issue them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from joserfc import jwk, jwt

import credence

ISSUER = "https://id.example.com"
AUDIENCE = "https://payments.example"
TOOLS: dict[str, Any] = {
    "payments.charge": {
        "account": {"constraint_type": "exact", "value": "a1"},
        "amount": {"constraint_type": "range", "max": 100},
    }
}


def mint(
    issuer: credence.Key,
    holder: Mapping[str, Any],
    *,
    tools: Mapping[str, Any] | None = None,
    audience: str | None = AUDIENCE,
    lifetime: int = 3600,
    max_depth: int = 3,
    iss: str = ISSUER,
) -> str:
    """Issues a root token, as docs/start/agents.md does. `iat` is 10 seconds ago."""
    now = int(time.time()) - 10
    claims: dict[str, Any] = {
        "iss": iss,
        "sub": "ada",
        "rev_epoch": 0,
        "jti": str(uuid.uuid4()),
        "iat": now,
        "exp": now + lifetime,
        "del_depth": 0,
        "del_max_depth": max_depth,
        "cnf": {"jwk": dict(holder)},
        "authorization_details": [{"type": "attenuating_agent_token", "tools": dict(tools or TOOLS)}],
    }
    if audience is not None:
        claims["aud"] = audience
    key = jwk.import_key(issuer.to_private_jwk())
    return jwt.encode({"alg": issuer.algorithm, "typ": "aat+jwt"}, claims, key, algorithms=[issuer.algorithm])


def case(
    issuer: credence.Key, chain: str, tool: str, arguments: Mapping[str, Any], proof: str | None, **policy: Any
) -> str:
    """A case for a verifier that trusts the issuer."""
    algorithms = {"algs": ["Ed25519", "ES256"]}
    members: dict[str, Any] = {
        "id": "case",
        "anchors": [{"iss": ISSUER, "jwk": issuer.public_jwk}],
        "chain": chain.split("~"),
        "tool": tool,
        "args": arguments,
        "now": int(time.time()),
        "audience": [AUDIENCE],
        "policy": {**algorithms, **policy},
    }
    if proof is not None:
        members["proof"] = proof
    return json.dumps(members)


def decide(
    issuer: credence.Key, chain: str, tool: str, arguments: Mapping[str, Any], proof: str | None, **policy: Any
) -> Any:
    """The verifier's answer: `decision`, `step` and `reason`."""
    verified: Any = credence.verify(case(issuer, chain, tool, arguments, proof, **policy))
    assert verified["is_case"], verified
    return verified["answer"]
