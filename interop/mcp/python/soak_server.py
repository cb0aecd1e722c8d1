"""A server on version 2 of the official Python SDK that writes down what it runs.

Usage: soak_server.py PORT LOG NAMES. NAMES is the JSON object of tools.mjs.
"""

import json
import sys
from contextvars import ContextVar

from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from soak_tools import Recorder, arguments_read, register

PORT, LOG, NAMES = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])

# Methods whose handlers write down what runs.
RECORDED = ("tools/call", "resources/read", "prompts/get")

# The message that is being served.
current: ContextVar = ContextVar("current", default=None)


class Server(MCPServer):
    async def call_tool(self, name, arguments, context=None):
        arguments_read.set(arguments)
        return await super().call_tool(name, arguments, context)


async def observe(context, call_next):
    """Writes down every other message that the SDK dispatches."""
    current.set(context)
    if context.method not in RECORDED:
        recorder.ran(context.method, dict(context.params or {}))
    return await call_next(context)


recorder = Recorder(LOG, lambda: getattr(getattr(current.get(), "request", None), "headers", None))
server = Server(name="soak", version="1.0.0", log_level="CRITICAL")
server.middleware.append(observe)
register(server, recorder, NAMES)
server.run(
    transport="streamable-http",
    port=PORT,
    # Envoy removes the port from the host.
    transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
)
