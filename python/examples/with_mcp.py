import asyncio
import sys
from pathlib import Path

from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

import credence
from credence.mcp import DelegationClient, problem


async def main(origin: str, audience: str) -> None:
    delegation = credence.Delegation.parse(Path("delegation.txt").read_text())
    agent = credence.Agent(delegation, credence.Key.load("agent.jwk"), credence.Service(origin, audience=audience))
    async with DelegationClient(agent) as http:
        async with Client(streamable_http_client(f"{origin}/mcp", http_client=http)) as client:
            result = await client.call_tool("get_forecast", {"city": "Oslo"})
            print(result.structured_content)
            try:
                await client.call_tool("get_forecast", {"city": "Rome"})
            except MCPError as error:
                print(problem(error))


asyncio.run(main(*sys.argv[1:]))
