"""The hook for httpx, against real servers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest

import credence
from credence.httpx import DelegationAuth
from credence.origin import Origin

from .minting import AUDIENCE
from .servers import RULES, Payments, Seen, Server, serving

CHARGE = "/v1/accounts/a1/charges?amount=15"
REFUND = {"account": "a1", "amount": 15}


class Sync:
    """A synchronous client, behind the same interface as the asynchronous one."""

    def __init__(self, agent: credence.Agent, **options: Any) -> None:
        self.client = httpx.Client(auth=DelegationAuth(agent), **options)

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        return self.client.request(method, url, **options)

    @staticmethod
    def stream(*chunks: bytes) -> Iterator[bytes]:
        yield from chunks


class Async:
    def __init__(self, agent: credence.Agent, **options: Any) -> None:
        self.agent, self.options = agent, options

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(auth=DelegationAuth(self.agent), **self.options) as client:
                return await client.request(method, url, **options)

        return asyncio.run(send())

    @staticmethod
    async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk


Client = Callable[..., Any]
both = pytest.mark.parametrize("client", [Sync, Async])


@both
def test_a_request_carries_delegation_and_proof(client: Client, agent: credence.Agent, server: Server) -> None:
    http = client(agent)
    for _ in range(2):
        assert http.request("POST", server.origin + CHARGE).status_code == 200
    first, second = server.calls()
    assert first.values("delegation") == second.values("delegation")
    assert first.values("delegation-proof") != second.values("delegation-proof")
    assert len(server.seen) == 3  # The rules were fetched once.


@both
def test_a_denied_request_is_not_sent(client: Client, agent: credence.Agent, server: Server) -> None:
    with pytest.raises(credence.Denied) as denied:
        client(agent).request("POST", server.origin + "/v1/accounts/a1/charges?amount=1000")
    assert (denied.value.reason, denied.value.argument) == ("argument_not_allowed", "amount")
    assert server.calls() == []


@both
def test_a_body_is_read_only_if_a_rule_reads_it(client: Client, agent: credence.Agent, server: Server) -> None:
    http = client(agent)
    assert http.request("POST", f"{server.origin}/v1/refunds", json=REFUND).json() == REFUND
    text = json.dumps(REFUND).encode()
    json_type = {"content-type": "application/json"}
    streamed = http.stream(text[:5], text[5:])
    answer = http.request("POST", f"{server.origin}/v1/refunds", content=streamed, headers=json_type)
    assert (answer.status_code, answer.content) == (200, text)
    big = http.stream(*[b"x" * 100_000] * 30)
    assert http.request("POST", server.origin + CHARGE, content=big).content == b"x" * 3_000_000


@both
def test_a_body_beyond_the_limit_is_not_sent(client: Client, agent: credence.Agent, server: Server) -> None:
    http = client(agent)
    json_type = {"content-type": "application/json"}
    with pytest.raises(credence.Denied) as denied:
        http.request("POST", f"{server.origin}/v1/refunds", content=b" " * 2_000_000, headers=json_type)
    assert (denied.value.reason, denied.value.status) == ("body_too_large", 413)
    with pytest.raises(credence.Denied) as denied:
        http.request("POST", f"{server.origin}/v1/refunds", content=http.stream(b" " * 100_000), headers=json_type)
    assert denied.value.reason == "body_too_large"
    with pytest.raises(credence.InputError, match="larger than"):
        endless = http.stream(*[b" " * 100_000] * 30)
        http.request("POST", f"{server.origin}/v1/refunds", content=endless, headers=json_type)
    assert server.calls() == []


@both
def test_a_public_request_carries_nothing(client: Client, agent: credence.Agent, server: Server) -> None:
    headers = {"delegation": "forged"}
    assert client(agent).request("GET", f"{server.origin}/healthz", headers=headers).text == "ok"
    assert server.calls()[0].values("delegation") == []


@both
def test_headers_of_the_caller_are_replaced(client: Client, agent: credence.Agent, server: Server) -> None:
    headers = [("Delegation", "forged"), ("delegation", "again"), ("Delegation-Proof", "forged"), ("x", "kept")]
    assert client(agent).request("POST", server.origin + CHARGE, headers=headers).status_code == 200
    call = server.calls()[0]
    assert (len(call.values("delegation")), len(call.values("delegation-proof"))) == (1, 1)
    assert call.values("x") == ["kept"]


@both
def test_a_wrong_host_header_is_refused(client: Client, agent: credence.Agent, server: Server) -> None:
    with pytest.raises(credence.InputError, match="Host header"):
        client(agent).request("POST", server.origin + CHARGE, headers={"host": "other.example"})
    assert server.seen == []


@both
def test_another_origin_gets_nothing(client: Client, agent: credence.Agent) -> None:
    with serving(lambda _: (200, {}, b"")) as other:
        assert client(agent).request("POST", other.origin + CHARGE).status_code == 200
    assert len(other.seen) == 1
    _assert_no_credential(other.seen[0])


@both
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_carries_no_credential(
    client: Client, agent: credence.Agent, payments: Payments, server: Server, status: int
) -> None:
    payments.rules = {
        **RULES,
        "rules": [{**RULES["rules"][0], "name": "moved", "match": {"path": "/moved"}, "args": {}}, *RULES["rules"]],
    }
    agent.credential = _open_delegation(agent, payments)
    with serving(lambda _: (200, {"delegation-nonce": "of another"}, b"")) as other:
        for target in (other, server):
            payments.redirect = status, target.origin + CHARGE
            client(agent, follow_redirects=True).request("POST", f"{server.origin}/moved")
            last = target.seen[-1]
            assert last.target == CHARGE
            _assert_no_credential(last)
        moved = [seen for seen in server.calls() if seen.target == "/moved"]
        assert all(len(seen.values("delegation")) == 1 for seen in moved)
    assert agent.service(Origin.parse(server.origin)).nonce is None  # type: ignore[union-attr]


def _open_delegation(agent: credence.Agent, payments: Payments) -> credence.Delegation:
    from .minting import mint

    assert agent.signer is not None
    return credence.Delegation.parse(mint(payments.issuer, agent.signer.public_jwk, tools={"payments.charge": {}}))


def _assert_no_credential(seen: Seen) -> None:
    for name in ("delegation", "delegation-proof", "authorization", "dpop"):
        assert seen.values(name) == []


@both
def test_a_nonce_is_used_from_the_second_request_on(
    client: Client, agent: credence.Agent, payments: Payments, server: Server
) -> None:
    payments.nonce = "first"
    http = client(agent)
    assert http.request("POST", f"{server.origin}/v1/refunds", json=REFUND).status_code == 200
    assert len(server.calls()) == 2
    refused, accepted = (call.values("delegation-proof")[0] for call in server.calls())
    assert refused != accepted
    assert http.request("POST", f"{server.origin}/v1/refunds", json=REFUND).status_code == 200
    assert len(server.calls()) == 3
    payments.nonce = "second"
    assert http.request("POST", f"{server.origin}/v1/refunds", json=REFUND).status_code == 200
    assert len(server.calls()) == 5


@both
def test_a_request_is_repeated_at_most_once(
    client: Client, agent: credence.Agent, payments: Payments, server: Server
) -> None:
    def always_another(seen: Seen) -> tuple[int, dict[str, str], bytes]:
        if "/.well-known/" in seen.target:
            return 200, {}, json.dumps(RULES).encode()
        return 401, {"delegation-nonce": f"n{len(server.seen)}"}, b""

    server.answer = always_another
    assert client(agent).request("POST", server.origin + CHARGE).status_code == 401
    assert len(server.calls()) == 2


@both
def test_a_spent_stream_is_not_sent_again(
    client: Client, agent: credence.Agent, payments: Payments, server: Server
) -> None:
    payments.nonce = "n"
    http = client(agent)
    answer = http.request("POST", server.origin + CHARGE, content=http.stream(b"once"))
    assert (answer.status_code, len(server.calls())) == (401, 1)
    answer = http.request("POST", server.origin + CHARGE, content=http.stream(b"once"))
    assert (answer.status_code, answer.content) == (200, b"once")


@both
def test_a_huge_nonce_is_ignored(client: Client, agent: credence.Agent, payments: Payments, server: Server) -> None:
    payments.nonce = "n" * 1000
    assert client(agent).request("POST", server.origin + CHARGE).status_code == 401
    assert len(server.calls()) == 1


@both
def test_credentials_are_not_in_what_is_logged(
    client: Client, agent: credence.Agent, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    response = client(agent).request("POST", server.origin + CHARGE)
    sent = server.calls()[0]
    secrets = [sent.values("delegation")[0], sent.values("delegation-proof")[0]]
    shown = f"{response.request.headers!r} {response.request.headers.raw} {response!r} {caplog.text}"
    assert not [secret for secret in secrets if secret in shown]


def test_a_request_object_can_be_sent_again(agent: credence.Agent, server: Server) -> None:
    with httpx.Client(auth=DelegationAuth(agent)) as client:
        request = client.build_request("POST", server.origin + CHARGE)
        assert [client.send(request).status_code for _ in range(2)] == [200, 200]
    with httpx.Client(auth=DelegationAuth(agent), transport=_Unreachable()) as client:
        with pytest.raises(httpx.ConnectError):
            client.send(request)
    assert b"delegation" not in dict(request.headers.raw)


class _Unreachable(httpx.BaseTransport):
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no network", request=request)


def test_an_access_token_goes_with_a_dpop_proof(server: Server, payments: Payments, key: credence.Key) -> None:
    rule = {
        "name": "token",
        "match": {"methods": ["POST"], "path": "/v1/accounts/{account}/charges"},
        "tool": "payments.charge",
        "args": {"account": {"path": "account"}, "amount": {"query": "amount", "type": "number"}},
        "authorization": {"proof": "dpop"},
    }
    service = credence.Service.from_document(server.origin, json.dumps({**RULES, "rules": [rule]}), audience=AUDIENCE)
    agent = credence.Agent(credence.AccessToken("token"), key, service)
    with httpx.Client(auth=DelegationAuth(agent)) as client:
        client.post(server.origin + CHARGE, headers={"authorization": "Bearer forged"})
    call = server.calls()[0]
    assert call.values("authorization") == ["DPoP token"]
    assert len(call.values("dpop")) == 1


def test_an_agent_checks_its_parts(
    delegation: credence.Delegation, service: credence.Service, key: credence.Key
) -> None:
    with pytest.raises(credence.InputError, match="use that key"):
        credence.Agent(delegation, credence.Key.generate(), service)
    with pytest.raises(credence.InputError, match="same origin"):
        credence.Agent(delegation, key, [service, service])
