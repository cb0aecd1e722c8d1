"""Delegations for the MCP client of the package `mcp`, over streamable HTTP.

async with Client(streamable_http_client(url, http_client=DelegationClient(agent))) as client: …
"""

from __future__ import annotations

from typing import Any

import httpx2
from mcp import MCPError

from .agent import Agent
from .errors import Denied
from .exchange import ExchangeAuth


class DelegationAuth(ExchangeAuth, httpx2.Auth):
    """Presents the agent's credential to its services, for any client of `httpx2`.

    See `credence.httpx.DelegationAuth`.
    """

    _headers = httpx2.Headers


class DelegationClient(httpx2.AsyncClient):
    """The HTTP client for `mcp.client.streamable_http.streamable_http_client`.

    An exception would end the whole MCP session. So a denied call gets the answer that the service's filter would give,
    without being sent: `call_tool` raises an `MCPError`, from which `problem` takes the reason.

    Args:
        agent: The agent.
        options: The options of `httpx2.AsyncClient`. By default, a read may take 300 seconds and anything else 30.
    """

    def __init__(self, agent: Agent, **options: Any) -> None:
        options.setdefault("timeout", httpx2.Timeout(30.0, read=300.0))
        super().__init__(auth=DelegationAuth(agent), **options)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Sends one request, or answers it if it would be denied."""
        try:
            return await super().send(request, **options)
        except Denied as denial:
            return httpx2.Response(denial.status, headers=denial.headers, content=denial.body.encode(), request=request)


def problem(error: MCPError) -> dict[str, Any] | None:
    """The problem document (RFC 9457) of a denied call, with its `reason` and `argument`. None for any other error."""
    data = error.error.data
    return data if isinstance(data, dict) and "reason" in data else None
