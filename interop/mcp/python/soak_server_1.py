"""A server on version 1 of the official Python SDK, like soak_server.py. It has no sessions."""

import json
import sys

from mcp.server.fastmcp import FastMCP
from mcp.server.transport_security import TransportSecuritySettings
from soak_tools import Recorder, arguments_read, register

PORT, LOG, NAMES = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])


class Server(FastMCP):
    async def call_tool(self, name, arguments):
        arguments_read.set(arguments)
        return await super().call_tool(name, arguments)


server = Server(
    name="soak",
    port=PORT,
    stateless_http=True,
    json_response=True,
    log_level="CRITICAL",
    # Envoy removes the port from the host.
    transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
)
register(server, Recorder(LOG, lambda: server._mcp_server.request_context.request.headers), NAMES)
server.run(transport="streamable-http")
