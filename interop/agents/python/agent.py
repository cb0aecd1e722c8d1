"""Code that the agents in Python share: they perform one action for each line of standard input."""

import errno
import json
import os
import sys
import traceback

import anyio


async def read_line():
    # In a thread, so that streams are read meanwhile.
    return json.loads(await anyio.to_thread.run_sync(sys.stdin.readline) or "null")


async def serve(actions: dict) -> None:
    """Performs actions until standard input ends."""
    while (line := await read_line()) is not None:
        name, *args = line
        try:
            result = (actions | OWN)[name](*args)
            answer = {"ok": await result if hasattr(result, "__await__") else result}
        except Exception as error:
            answer = {"error": said(error)}
        write_line(answer)


def said(error: BaseException) -> str:
    """What a program reads of an error: its text, the data of an MCP error, and the challenge of a response."""
    if isinstance(error, BaseExceptionGroup):
        return "\n".join(said(inner) for inner in error.exceptions)
    parts = ["".join(traceback.format_exception(error))]
    # An MCPError has it, an McpError has it in its error.
    data = getattr(error, "data", None) or getattr(getattr(error, "error", None), "data", None)
    if data is not None:
        parts.append(json.dumps(data))
    if response := getattr(error, "response", None):
        parts.append(response.headers.get("www-authenticate", ""))
    return " ".join(parts)


def write_line(answer: dict) -> None:
    print(json.dumps(answer), flush=True)


def open_file(path: str) -> str:
    try:
        os.close(os.open(path, os.O_RDONLY))
        return "opened"
    except OSError as error:
        return errno.errorcode[error.errno]


OWN = {"uid": os.getuid, "open": open_file}
