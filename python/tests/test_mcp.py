"""The official MCP client against the official server, behind a check of each request, in both eras of MCP."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer

import credence
from credence.mcp import DelegationAuth, DelegationClient, problem

from .minting import AUDIENCE, decide, mint

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

RULES = {
    "credence_agent_rules": 1,
    "issuers": ["https://id.example.com"],
    "audience": [AUDIENCE],
    "rules": [
        {
            "name": "weather",
            "match": {"path": "/mcp"},
            "mcp": {
                "methods": {
                    method: {"open": True}
                    for method in (
                        "DELETE",
                        "GET",
                        "initialize",
                        "notifications/cancelled",
                        "notifications/initialized",
                        "ping",
                        "server/discover",
                        "tools/list",
                    )
                },
                "tools": {"prefix": "weather."},
                "versions": ["2025-06-18", "2025-11-25", "2026-07-28"],
            },
        }
    ],
}
TOOLS: dict[str, Any] = {"weather.get_forecast": {"city": {"constraint_type": "exact", "value": "Oslo"}}}


@dataclass
class Checked:
    """The MCP server, and a check in front of it as the filter would make it."""

    app: Any
    issuer: credence.Key
    origin: str = ""
    nonce: str | None = None
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    proofs: set[str] = field(default_factory=set)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["path"] == "/.well-known/credence-agent-rules":
            await _answer(send, 200, json.dumps(RULES).encode())
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        call = json.loads(body) if body else {}
        self.calls.append((str(call.get("method", scope["method"])), headers))
        if not self.is_allowed(call, headers):
            await _answer(send, 401, b"{}", {"delegation-nonce": self.nonce} if self.nonce else {})
            return
        await self.app(scope, _again(body, receive), send)

    def is_allowed(self, call: dict[str, Any], headers: dict[str, str]) -> bool:
        proof = headers.get("delegation-proof")
        if proof is None or proof in self.proofs or "delegation" not in headers:
            return False
        self.proofs.add(proof)
        if call.get("method") != "tools/call":
            return True
        tool, arguments = f"weather.{call['params']['name']}", call["params"].get("arguments", {})
        policy = {"nonce": self.nonce} if self.nonce else {}
        return bool(decide(self.issuer, headers["delegation"], tool, arguments, proof, **policy)["decision"] == "allow")


def _again(body: bytes, receive: Receive) -> Receive:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message


async def _answer(send: Send, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    listed = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def server(issuer: credence.Key) -> Iterator[Checked]:
    mcp = MCPServer("weather")

    @mcp.tool()
    def get_forecast(city: str) -> str:
        """Says the weather."""
        return f"Rain in {city}"

    with socket.create_server(("127.0.0.1", 0)) as listener:
        checked = Checked(mcp.streamable_http_app(), issuer, f"http://127.0.0.1:{listener.getsockname()[1]}")
        config = uvicorn.Config(checked, log_level="error", timeout_graceful_shutdown=1)
        http = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(http.serve([listener])), daemon=True)
        thread.start()
        yield checked
        http.should_exit = True
        thread.join(10)


@pytest.fixture
def agent(issuer: credence.Key, key: credence.Key, server: Checked) -> credence.Agent:
    delegation = credence.Delegation.parse(mint(issuer, key.public_jwk, tools=TOOLS))
    return credence.Agent(delegation, key, credence.Service(server.origin, audience=AUDIENCE))


eras = pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])


def _session(agent: credence.Agent, server: Checked, mode: str, use: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with DelegationClient(agent) as http:
            transport = streamable_http_client(f"{server.origin}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                await use(client)

    asyncio.run(run())


@eras
def test_each_request_of_a_session_has_its_proof(agent: credence.Agent, server: Checked, mode: str) -> None:
    async def use(client: Client) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["get_forecast"]
        for _ in range(2):
            result = await client.call_tool("get_forecast", {"city": "Oslo"})
            assert (result.is_error, result.content[0].text) == (False, "Rain in Oslo")  # type: ignore[union-attr]

    _session(agent, server, mode, use)
    methods = [method for method, _ in server.calls]
    assert methods.count("tools/call") == 2
    assert ("initialize" in methods) == (mode == "legacy")
    assert ("DELETE" in methods) == (mode == "legacy")
    assert len(server.proofs) == len(server.calls)


@eras
def test_a_denied_call_is_an_error_of_the_call_alone(agent: credence.Agent, server: Checked, mode: str) -> None:
    async def use(client: Client) -> None:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("get_forecast", {"city": "Rome"})
        denied = problem(raised.value)
        assert denied is not None
        assert (raised.value.code, denied["reason"], denied["argument"]) == (403, "argument_not_allowed", "city")
        with pytest.raises(MCPError):
            await client.call_tool("set_alarm", {})
        assert not (await client.call_tool("get_forecast", {"city": "Oslo"})).is_error

    _session(agent, server, mode, use)
    assert [method for method, _ in server.calls].count("tools/call") == 1
    assert problem(MCPError(1, "another")) is None


@eras
def test_a_nonce_is_used(agent: credence.Agent, server: Checked, mode: str) -> None:
    server.nonce = "n"

    async def use(client: Client) -> None:
        assert not (await client.call_tool("get_forecast", {"city": "Oslo"})).is_error

    _session(agent, server, mode, use)


def test_a_denial_is_raised_to_other_users_of_the_http_client(agent: credence.Agent, server: Checked) -> None:
    import httpx2

    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_forecast", "arguments": {}}}
    with httpx2.Client(auth=DelegationAuth(agent)) as client, pytest.raises(credence.Denied) as denied:
        client.post(f"{server.origin}/mcp", json=call, headers={"mcp-protocol-version": "2025-11-25"})
    assert denied.value.reason == "argument_missing"
    assert denied.value.problem["reason"] == "argument_missing"
    assert server.calls == []
