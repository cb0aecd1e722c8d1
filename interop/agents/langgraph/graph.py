"""An agent on LangGraph with a scripted model. Its tools are those of an MCP server, and two that call a REST service.

The first line of standard input has `mcp`, a connection of langchain-mcp-adapters, and `rest`: a `url`, and a `proxy`
unless the URL is the proxy's own. See agent.py in interop/agents/python.
"""

import sys
from pathlib import Path

import anyio
import httpx

sys.path.append(str(Path(__file__).parent.parent / "python"))

from agent import read_line, said, serve, write_line
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_mcp_adapters.client import MultiServerMCPClient


class ScriptedModel(GenericFakeChatModel):
    """Calls the tools that its script has. A model that follows an attacker's text would do the same."""

    def bind_tools(self, tools, **settings):
        return self


@wrap_tool_call
async def errors_are_read(request, call):
    """The model reads errors of tools, instead of them ending the run."""
    try:
        return await call(request)
    except Exception as error:
        return ToolMessage(said(error), tool_call_id=request.tool_call["id"], status="error")


def rest_tools(url: str, proxy: str | None) -> list:
    @tool
    async def order(sku: str, amount: int) -> str:
        """Orders office supplies."""
        async with httpx.AsyncClient(proxy=proxy) as client:
            response = await client.post(f"{url}/v1/orders", json={"sku": sku, "amount": amount})
            return f"{response.status_code} {response.text}"

    @tool
    async def charge(account: str, amount: int) -> str:
        """Charges an account."""
        async with httpx.AsyncClient(proxy=proxy) as client:
            response = await client.post(f"{url}/v1/accounts/{account}/charges", params={"amount": amount})
            return f"{response.status_code} {response.text}"

    return [order, charge]


async def main() -> None:
    options = await read_line()
    client = MultiServerMCPClient({"server": options["mcp"]})
    tools = rest_tools(options["rest"]["url"], options["rest"].get("proxy"))
    try:
        tools += await client.get_tools()
    except Exception as error:
        return write_line({"error": said(error)})
    write_line({"ok": None})

    async def run(*calls):
        """Runs an agent whose model makes these calls, one after the other. Returns what it reads of each."""
        script = [
            AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call-{number}"}])
            for number, (name, arguments) in enumerate(calls)
        ]
        model = ScriptedModel(messages=iter([*script, AIMessage("Done.")]))
        agent = create_agent(model, tools, middleware=[errors_are_read])
        result = await agent.ainvoke({"messages": [HumanMessage("Begin.")]})
        return [message.text for message in result["messages"] if isinstance(message, ToolMessage)]

    await serve({"list": lambda: [tool.name for tool in tools], "run": run})


anyio.run(main)
