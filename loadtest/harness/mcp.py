"""The filter's work for messages to an MCP server."""

import json
from dataclasses import replace
from pathlib import Path

from . import credence
from .case import Case
from .credence import ControlPlane, Tool
from .envoy import grpc_cluster, wasm_filter

VERSION = "2026-07-28"
SERVER_TOOL = "search"


def cases(tool: Tool, plane: ControlPlane, module: Path, scratch: Path) -> list[Case]:
    """A call with a known delegation, of these sizes, and what Envoy itself takes to wait for the smaller one."""
    issuer_key, agent_key = scratch / "mcp-issuer.jwk", scratch / "mcp-agent.jwk"
    issuer = tool.keygen(issuer_key)
    tool.keygen(agent_key)
    granted = {"text": {"constraint_type": "wildcard"}, "limit": {"constraint_type": "range", "max": 100}}
    delegation = tool.mint(issuer_key, agent_key, granted=f"shop.{SERVER_TOOL}={json.dumps(granted)}")

    def case(name: str, length: int) -> Case:
        # Its own name, so that each has its own VM and cluster.
        own_name = f"credence_{name}"
        settings = credence.configuration(issuer, own_name, plane.log_id, {})
        endpoint = {"tools": {"prefix": "shop."}, "methods": {"tools/list": {"open": True}}}
        settings["rules"].append({"name": "mcp", "match": {"path": "/mcp"}, "mcp": endpoint, "proof": "none"})
        return Case(
            name,
            filters=[wasm_filter(own_name, module, settings, reads_bodies=True)],
            method="POST",
            path="/mcp",
            headers={
                "delegation": delegation,
                "content-type": "application/json",
                "mcp-protocol-version": VERSION,
                "mcp-method": "tools/call",
                "mcp-name": SERVER_TOOL,
            },
            body=call(length),
            # The content type is missing too.
            status_without_headers=401,
            clusters=[grpc_cluster(own_name, plane.grpc_port)],
        )

    hot = case("mcp_hot", 1_000)
    # Without a filter that waits for the body, Envoy answers before it has that, and closes the connection.
    buffered = {
        "name": "envoy.filters.http.buffer",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
            "max_request_bytes": 1 << 20,
        },
    }
    bare_post = replace(hot, name="bare_post", filters=[buffered], status_without_headers=200, clusters=[])
    return [bare_post, hot, case("mcp_64k", 65_000)]


def call(length: int) -> str:
    """A call of this length."""
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": SERVER_TOOL,
            "arguments": {"limit": 10, "text": ""},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": VERSION,
                "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
    message["params"]["arguments"]["text"] = "word " * ((length - len(json.dumps(message))) // 5)
    return json.dumps(message)
