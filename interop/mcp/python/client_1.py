"""A client on version 1 of the official Python SDK, like client.py.

Each action has a session of its own, since this version ends a session whose request is denied.
"""

from contextlib import asynccontextmanager
from functools import partial

import anyio
import httpx
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from wire import Hooks, answered, perform, read_line, write_line


async def elicited(context, params) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=answered(params.requestedSchema["properties"]))


async def roots(context) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[])


@asynccontextmanager
async def connect(url: str, hooks: Hooks):
    http = httpx.AsyncClient(timeout=30, event_hooks={"request": [hooks.request], "response": [hooks.response]})
    async with (
        http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write, elicitation_callback=elicited, list_roots_callback=roots) as session,
    ):
        await session.initialize()
        yield session


async def main() -> None:
    options = await read_line()
    hooks = Hooks(options)

    async def act(name: str, args: list):
        async with connect(options["url"], hooks) as session:
            result = await ACTIONS[name](session, *args)
            if name == "notify":
                await hooks.until_answered("notifications/roots/list_changed")
            return result

    await perform(hooks, partial(act, "ping", []))
    while (line := await read_line())[0] != "close":
        name, *args = line
        await perform(hooks, partial(act, name, args))
    write_line({"ok": None})


async def ping(session):
    await session.send_ping()


async def list_tools(session):
    return [tool.name for tool in (await session.list_tools()).tools]


async def call(session, name, arguments):
    progress = []

    async def stepped(step, total, message):
        progress.append(step)

    result = await session.call_tool(name, arguments, progress_callback=stepped)
    return {"text": result.content[0].text, "isError": result.isError, "progress": progress}


async def read(session, uri):
    return (await session.read_resource(uri)).contents[0].text


async def prompt(session, name):
    return (await session.get_prompt(name)).messages[0].content.text


async def complete(session):
    reference = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    await session.complete(reference, {"name": "arg1", "value": "a"})


async def notify(session):
    await session.send_roots_list_changed()


ACTIONS = {
    "ping": ping, "list": list_tools, "call": call, "read": read, "prompt": prompt, "complete": complete,
    "notify": notify,
}

anyio.run(main)
