"""Delegations: reading, narrowing and proving."""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Any

import pytest
from joserfc import jwk, jws

import credence

from .minting import AUDIENCE, decide, mint

CALL = {"account": "a1", "amount": 15}


def test_a_delegation_says_what_it_grants(delegation: credence.Delegation, key: credence.Key) -> None:
    assert delegation.tools == ("payments.charge",)
    assert (delegation.depth, delegation.depth_left) == (0, 3)
    assert delegation.holder == key.thumbprint
    assert delegation.expires_at - delegation.issued_at == 3600
    claims = delegation.unverified_claims()[0]["claims"]
    assert (claims["sub"], claims["jti"]) == ("ada", delegation.id)
    assert credence.inspect(delegation.text)["verified"] is False
    assert credence.Delegation.parse(f" {delegation.text}\n").text == delegation.text


def test_tokens_are_not_shown(delegation: credence.Delegation, agent: credence.Agent) -> None:
    shown = f"{delegation} {delegation!r} {agent!r} {credence.AccessToken('SECRET')!r}"
    assert delegation.text[:20] not in shown
    assert "SECRET" not in shown
    assert delegation.id in shown


def test_an_expired_delegation_is_refused_but_can_be_inspected(issuer: credence.Key, key: credence.Key) -> None:
    expired = mint(issuer, key.public_jwk, lifetime=5)
    with pytest.raises(credence.InputError, match="expired"):
        credence.Delegation.parse(expired)
    assert credence.inspect(expired)["tokens"]


@pytest.mark.parametrize("text", ["", "~", "a.b.c", "eyJ.eyJ.", "ü", "a" * 100_000])
def test_what_is_no_chain_is_refused(text: str) -> None:
    with pytest.raises(credence.InputError):
        credence.Delegation.parse(text)


def test_a_call_is_checked(delegation: credence.Delegation) -> None:
    delegation.check("payments.charge", CALL)
    assert delegation.permits("payments.charge", CALL)
    for tool, arguments, reason, about in [
        ("payments.charge", {**CALL, "amount": 101}, "argument_not_allowed", "amount"),
        ("payments.charge", {**CALL, "amount": "15"}, "argument_not_allowed", "amount"),
        ("payments.refund", CALL, "tool_not_granted", "payments.refund"),
    ]:
        assert not delegation.permits(tool, arguments)
        with pytest.raises(credence.Denied) as denied:
            delegation.check(tool, arguments)
        assert (denied.value.reason, denied.value.argument, denied.value.status) == (reason, about, 403)
        assert denied.value.problem["reason"] == reason
        assert denied.value.title in str(denied.value)
    with pytest.raises(credence.InputError, match="not JSON"):
        delegation.check("payments.charge", {"amount": float("nan")})


def test_a_derived_delegation_is_narrower(
    issuer: credence.Key, delegation: credence.Delegation, key: credence.Key
) -> None:
    worker = credence.Key.generate("ES256")
    narrower = delegation.derive(
        key,
        holder=worker.public_jwk,
        tools={
            "payments.charge": {
                "account": {"constraint_type": "exact", "value": "a1"},
                "amount": {"constraint_type": "range", "max": 20},
            }
        },
        audience=AUDIENCE,
        lifetime=60,
    )
    assert narrower.holder == worker.thumbprint
    assert (narrower.depth, narrower.depth_left) == (1, 0)
    assert narrower.expires_at <= time.time() + 60
    assert narrower.permits("payments.charge", {"account": "a1", "amount": 20})
    assert not narrower.permits("payments.charge", {"account": "a1", "amount": 21})
    proof = narrower.prove(worker, "payments.charge", CALL, audience=AUDIENCE)
    assert decide(issuer, narrower.text, "payments.charge", CALL, proof)["decision"] == "allow"


def test_a_derived_delegation_never_outlives_its_parent(delegation: credence.Delegation, key: credence.Key) -> None:
    holder = credence.Key.generate().public_jwk
    derived = delegation.derive(key, holder=holder, tools={"payments.charge": _parent_constraints()}, lifetime=10**6)
    assert derived.expires_at == delegation.expires_at


def _parent_constraints() -> dict[str, Any]:
    return {
        "account": {"constraint_type": "exact", "value": "a1"},
        "amount": {"constraint_type": "range", "max": 100},
    }


@pytest.mark.parametrize(
    "options",
    [
        {"tools": {"payments.charge": {}}},
        {"tools": {"payments.charge": {**_parent_constraints(), "amount": {"constraint_type": "range", "max": 101}}}},
        {"tools": {"payments.refund": {}}},
        {"max_depth": 4},
        {"lifetime": 0},
        {"holder": {"kty": "OKP"}},
    ],
)
def test_what_is_not_narrower_is_refused(
    delegation: credence.Delegation, key: credence.Key, options: dict[str, Any]
) -> None:
    holder = credence.Key.generate().public_jwk
    granted: dict[str, Any] = {"holder": holder, "tools": {"payments.charge": _parent_constraints()}, **options}
    with pytest.raises(credence.InputError):
        delegation.derive(key, **granted)


def test_only_the_holder_signs(delegation: credence.Delegation) -> None:
    other = credence.Key.generate()
    with pytest.raises(credence.InputError, match="use the key that it names"):
        delegation.prove(other, "payments.charge", CALL)
    with pytest.raises(credence.InputError, match="use the key that it names"):
        delegation.derive(other, holder=other.public_jwk, tools={"payments.charge": _parent_constraints()})


def test_a_proof_counts_for_its_call_only(
    issuer: credence.Key, delegation: credence.Delegation, key: credence.Key
) -> None:
    proof = delegation.prove(key, "payments.charge", CALL, audience=AUDIENCE, nonce="n1")

    def verdict(arguments: dict[str, Any], nonce: str = "n1") -> str:
        return str(decide(issuer, delegation.text, "payments.charge", arguments, proof, nonce=nonce)["decision"])

    assert verdict(CALL) == "allow"
    assert verdict({**CALL, "amount": 16}) == "deny"
    assert verdict(CALL, nonce="n2") == "deny"
    again = delegation.prove(key, "payments.charge", CALL, audience=AUDIENCE, nonce="n1")
    assert again != proof


def test_a_dpop_proof_names_request_token_and_nonce(key: credence.Key) -> None:
    proof = credence.dpop(key, "POST", "https://api.example/v1/a?b=c#d", access_token="token", nonce="n")
    verified = jws.deserialize_compact(proof.encode(), jwk.import_key(key.public_jwk), algorithms=["Ed25519"])
    header: Any = verified.headers()
    assert (header["typ"], header["jwk"]) == ("dpop+jwt", key.public_jwk)
    assert b'"htu":"https://api.example/v1/a"' in verified.payload
    assert b'"nonce":"n"' in verified.payload
    ath = base64.urlsafe_b64encode(hashlib.sha256(b"token").digest()).rstrip(b"=")
    assert b'"ath":"' + ath + b'"' in verified.payload
