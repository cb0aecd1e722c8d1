"""What the servers of generated requests offer, and how they write down what they run. See ../node/soak.

It is for version 1 and version 2 of the official SDK.
"""

import json
from contextvars import ContextVar
from typing import Annotated, Any

from pydantic import Field

# Of the tool call that runs, as the SDK read them.
arguments_read: ContextVar[dict[str, Any]] = ContextVar("arguments_read")


class Recorder:
    """Writes one line for each call that runs. `headers` gives those of the request that is being served."""

    def __init__(self, path: str, headers) -> None:
        self.log, self.headers = open(path, "a", encoding="utf-8", buffering=1), headers

    def ran(self, method: str, arguments: dict[str, Any], name: str | None = None, read: dict | None = None) -> None:
        """Of `tools/call`, `name` is the tool. `read` has what the tool gets, which may differ from the arguments."""
        headers = self.headers() or {}
        record = {
            "case": int(headers.get("x-soak-case", -1)),
            "rule": headers.get("x-soak-rule"),
            "request": headers.get("x-request-id"),
            "session": headers.get("mcp-session-id"),
            "decided": {"tool": headers.get("x-delegation-tool"), "delegation": headers.get("x-delegation-id")},
            "method": method,
            "name": name,
            "arguments": typed(arguments),
            "read": typed(arguments if read is None else read),
        }
        self.log.write(json.dumps(record) + "\n")

    def tool_ran(self, name: str, **read: Any) -> None:
        """`read` has what the tool gets: None is what was not sent."""
        read = {argument: value for argument, value in read.items() if value is not None}
        self.ran("tools/call", arguments_read.get(), name, read)


def typed(value: Any) -> Any:
    """As in record.mjs."""
    match value:
        case None | True | False:
            return value
        case str():
            return ["s", value]
        case int() | float():
            return ["n", repr(value)]
        case list() | tuple():
            return ["a", [typed(inner) for inner in value]]
        case dict():
            return ["o", [[name, typed(inner)] for name, inner in value.items()]]
        case _:
            return ["?", repr(value)]


def header(name: str) -> Any:
    return Field(json_schema_extra={"x-mcp-header": name})


def register(server, recorder: Recorder, names: dict[str, list[str]]) -> None:
    """Registers all tools, resources and prompts: those of tools.mjs, whose names these are."""
    for tool in ["pay", *names["decoys"]]:
        add_payment(server, recorder, tool)
    for tool in names["notes"]:
        add_note(server, recorder, tool)
    add_setting(server, recorder)
    for uri in names["resources"]:
        add_resource(server, recorder, uri)
    for prompt in names["prompts"]:
        add_prompt(server, recorder, prompt)


def add_payment(server, recorder: Recorder, tool: str) -> None:
    @server.tool(name=tool)
    async def pay(
        amount: float,
        currency: Annotated[str, header("Currency")],
        account: Annotated[str, header("Account")],
        memo: str | None = None,
    ) -> str:
        recorder.tool_ran(tool, amount=amount, currency=currency, account=account, memo=memo)
        return "done"


def add_note(server, recorder: Recorder, tool: str) -> None:
    @server.tool(name=tool)
    async def note(text: str | None = None) -> str:
        recorder.tool_ran(tool, text=text)
        return "done"


def add_setting(server, recorder: Recorder) -> None:
    @server.tool(name="set")
    async def setting(
        on: Annotated[bool, header("On")],
        tags: list[str],
        level: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> str:
        recorder.tool_ran("set", on=on, tags=tags, level=level, options=options)
        return "done"


def add_resource(server, recorder: Recorder, uri: str) -> None:
    @server.resource(uri, name=uri)
    async def resource() -> str:
        recorder.ran("resources/read", {"uri": uri})
        return "text"


def add_prompt(server, recorder: Recorder, name: str) -> None:
    @server.prompt(name=name)
    async def prompt() -> str:
        recorder.ran("prompts/get", {"name": name})
        return "hello"
