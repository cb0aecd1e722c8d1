"""The adapter for requests, against real servers."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import requests

import credence
from credence.origin import Origin
from credence.requests import DelegationAdapter

from .minting import AUDIENCE, mint
from .servers import RULES, Payments, Seen, Server, serving

CHARGE = "/v1/accounts/a1/charges?amount=15"
REFUND = {"account": "a1", "amount": 15}
JSON = {"content-type": "application/json"}


@pytest.fixture
def session(agent: credence.Agent) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.mount("http://", DelegationAdapter(agent))
        yield session


def test_a_request_carries_delegation_and_proof(session: requests.Session, server: Server) -> None:
    for _ in range(2):
        assert session.post(server.origin + CHARGE).status_code == 200
    first, second = server.calls()
    assert first.values("delegation") == second.values("delegation")
    assert first.values("delegation-proof") != second.values("delegation-proof")


def test_an_error_has_no_credential(delegation: credence.Delegation, key: credence.Key) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"http://127.0.0.1:{listener.getsockname()[1]}"
    service = credence.Service.from_document(closed, json.dumps(RULES), audience=AUDIENCE)
    with requests.Session() as session, pytest.raises(requests.RequestException) as raised:
        session.mount("http://", DelegationAdapter(credence.Agent(delegation, key, service)))
        session.post(closed + CHARGE)
    assert raised.value.request is not None
    assert not {"delegation", "delegation-proof"} & {name.lower() for name in raised.value.request.headers}


def test_a_denied_request_is_not_sent(session: requests.Session, server: Server) -> None:
    with pytest.raises(credence.Denied, match="argument_not_allowed"):
        session.post(server.origin + "/v1/accounts/a2/charges?amount=15")
    with pytest.raises(credence.Denied, match="body_too_large"):
        session.post(f"{server.origin}/v1/refunds", data=b" " * 2_000_000, headers=JSON)
    with pytest.raises(credence.InputError, match="larger than"):
        session.post(f"{server.origin}/v1/refunds", data=iter([b" " * 100_000] * 30), headers=JSON)
    assert server.calls() == []


def test_the_target_is_the_one_on_the_wire(session: requests.Session, server: Server) -> None:
    with pytest.raises(credence.Denied):
        session.post(f"{server.origin}/v1/accounts/a%31%2f/charges?amount=15")
    assert session.post(f"{server.origin}/v1/x/../accounts/a1/charges", params={"amount": "15"}).status_code == 200
    assert server.calls()[0].target == CHARGE


@pytest.mark.parametrize("body", [bytes, io.BytesIO, lambda text: iter([text[:4], text[4:]])])
def test_any_body_can_be_read(session: requests.Session, server: Server, body: Any) -> None:
    text = json.dumps(REFUND).encode()
    answer = session.post(f"{server.origin}/v1/refunds", data=body(text), headers=JSON)
    assert (answer.status_code, answer.content) == (200, text)
    answer = session.post(server.origin + CHARGE, data=body(text))
    assert (answer.status_code, answer.content) == (200, text)


def test_headers_of_the_caller_are_replaced(session: requests.Session, server: Server) -> None:
    headers = {"Delegation": "forged", "DELEGATION-PROOF": "forged", "x": "kept"}
    response = session.post(server.origin + CHARGE, headers=headers)
    assert response.status_code == 200
    call = server.calls()[0]
    assert (len(call.values("delegation")), len(call.values("delegation-proof"))) == (1, 1)
    assert call.values("x") == ["kept"]
    assert call.values("delegation")[0] not in str(response.request.headers)
    with pytest.raises(credence.InputError, match="Host header"):
        session.post(server.origin + CHARGE, headers={"Host": "other.example"})


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_only_this_origin_gets_a_credential(
    session: requests.Session, agent: credence.Agent, payments: Payments, server: Server, status: int
) -> None:
    payments.rules = {
        **RULES,
        "rules": [{**RULES["rules"][0], "name": "moved", "match": {"path": "/moved"}, "args": {}}, *RULES["rules"]],
    }
    assert agent.signer is not None
    tools: dict[str, Any] = {"payments.charge": {}}
    agent.credential = credence.Delegation.parse(mint(payments.issuer, agent.signer.public_jwk, tools=tools))
    with serving(lambda _: (200, {"delegation-nonce": "of another"}, b"")) as other:
        payments.redirect = status, other.origin + CHARGE
        assert session.post(f"{server.origin}/moved").status_code == 200
        assert len(server.calls()[0].values("delegation")) == 1
        seen: Seen = other.seen[0]
        assert [seen.values(name) for name in ("delegation", "delegation-proof", "authorization")] == [[], [], []]
    payments_service = agent.service(Origin.parse(server.origin))
    assert payments_service is not None
    assert payments_service.nonce is None
    if status > 302:  # Others turn POST into GET, which the rules do not allow.
        payments.redirect = status, server.origin + CHARGE
        assert session.post(f"{server.origin}/moved").status_code == 200


def test_a_nonce_is_used_from_the_second_request_on(
    session: requests.Session, payments: Payments, server: Server
) -> None:
    payments.nonce = "first"
    for expected in (2, 3):
        assert session.post(f"{server.origin}/v1/refunds", json=REFUND).status_code == 200
        assert len(server.calls()) == expected
    payments.nonce = "second"
    assert session.post(server.origin + CHARGE, data=iter([b"once"])).status_code == 401
    assert len(server.calls()) == 4
    assert session.post(server.origin + CHARGE, data=iter([b"once"])).content == b"once"
