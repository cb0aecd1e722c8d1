"""A client on version 2 of the official Python SDK. The first line of standard input has its options; see wire.py."""

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult, ListRootsResult, PromptReference
from wire import Hooks, answered, perform, read_line, write_line


async def elicited(context, params) -> ElicitResult:
    return ElicitResult(action="accept", content=answered(params.requested_schema["properties"]))


async def roots(context) -> ListRootsResult:
    return ListRootsResult(roots=[])


async def main() -> None:
    options = await read_line()
    hooks = Hooks(options)
    http = httpx2.AsyncClient(
        timeout=30, event_hooks={"request": [hooks.request], "response": [hooks.response]}
    )
    transport = streamable_http_client(options["url"], http_client=http)
    mode = "auto" if options["version"] == "2026-07-28" else "legacy"
    client = Client(
        transport, mode=mode, elicitation_callback=elicited, list_roots_callback=roots, read_timeout_seconds=30
    )
    try:
        async with client:
            write_line({"ok": client.protocol_version})
            await serve(client, hooks)
    except Exception as error:
        write_line({"error": repr(error), "denial": hooks.denial})


async def serve(client: Client, hooks: Hooks) -> None:
    actions = Actions(client, hooks)
    while (line := await read_line())[0] != "close":
        name, *args = line
        await perform(hooks, lambda: getattr(actions, name)(*args))
    write_line({"ok": None})


class Actions:
    def __init__(self, client: Client, hooks: Hooks) -> None:
        self.client, self.hooks = client, hooks

    async def list(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name, arguments):
        progress = []

        async def stepped(step, total, message):
            progress.append(step)

        result = await self.client.call_tool(name, arguments, progress_callback=stepped)
        return {"text": result.content[0].text, "isError": result.is_error, "progress": progress}

    async def read(self, uri):
        return (await self.client.read_resource(uri)).contents[0].text

    async def prompt(self, name):
        return (await self.client.get_prompt(name)).messages[0].content.text

    async def complete(self):
        reference = PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        await self.client.complete(reference, {"name": "arg1", "value": "a"})

    async def notify(self):
        await self.client.send_roots_list_changed()
        await self.hooks.until_answered("notifications/roots/list_changed")

    async def subscribe(self, tool):
        """Opens a subscription, calls this tool, and waits for the change that it causes."""
        async with self.client.listen(tools_list_changed=True) as subscription:
            await self.client.call_tool(tool, {})
            with anyio.fail_after(10):
                async for _ in subscription:
                    return


anyio.run(main)
