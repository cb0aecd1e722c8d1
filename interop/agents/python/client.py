"""An agent with version 2 of MCP's Python SDK, unmodified.

The first line of standard input has `version`, and either `url` or `command` and `args`. See agent.py.
"""

import anyio
from agent import read_line, said, serve, write_line
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    options = await read_line()
    if "url" in options:
        transport = streamable_http_client(options["url"])
    else:
        transport = stdio_client(StdioServerParameters(command=options["command"], args=options["args"]))
    mode = "auto" if options["version"] == "2026-07-28" else "legacy"
    try:
        async with Client(transport, mode=mode, read_timeout_seconds=30) as client:
            write_line({"ok": None})
            await serve(actions(client))
    except Exception as error:
        write_line({"error": said(error)})


def actions(client: Client) -> dict:
    async def listed():
        return [tool.name for tool in (await client.list_tools()).tools]

    async def call(name, arguments):
        return (await client.call_tool(name, arguments)).content[0].text

    return {"version": lambda: client.protocol_version, "list": listed, "call": call}


anyio.run(main)
