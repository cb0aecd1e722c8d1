"""What the clients of both versions of the SDK share: headers, proofs, and one action a line of standard input."""

import json
import subprocess
import sys
import traceback

import anyio

# As in prove.mjs.
TOOLS = {"resources/read": "everything.read", "prompts/get": "everything.prompt"}
UNPROVEN = ("_meta", "inputResponses", "requestState")
AUDIENCE = "https://mcp.example"

# What a user answers to a question.
USER = {"response": "blue", "name": "Ada"}


def use(method: str, body: bytes) -> tuple[str, dict]:
    """The tool of a message's proof, and the arguments."""
    if not body:
        return method, {}
    message = json.loads(body)
    params = message.get("params", {})
    name = message.get("method", "responses")
    if name == "tools/call":
        return f"everything.{params['name']}", params.get("arguments") or {}
    return TOOLS.get(name, name), {key: value for key, value in params.items() if key not in UNPROVEN}


class Hooks:
    """Adds headers to each request of an httpx client, and remembers the last denial and what was answered."""

    def __init__(self, options: dict) -> None:
        self.delegation, self.proofs, self.denial = options.get("delegation"), options.get("proofs"), None
        self.answered: set[str] = set()

    async def request(self, request) -> None:
        if not self.delegation:
            return
        request.headers["delegation"] = self.delegation
        if self.proofs:
            request.headers["delegation-proof"] = self.prove(*use(request.method, request.content))

    def prove(self, tool: str, arguments: dict) -> str:
        command = [self.proofs["program"], "prove", "--chain", self.delegation, "--key", self.proofs["key"]]
        command += ["--tool", tool, "--audience", AUDIENCE]
        for name, value in arguments.items():
            command += ["--arg-json", f"{name}={json.dumps(value)}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    async def until_answered(self, method: str) -> None:
        """For a notification, of which the SDK does not await the answer."""
        with anyio.fail_after(10):
            while method not in self.answered:
                await anyio.sleep(0.01)

    async def response(self, response) -> None:
        name, _ = use(response.request.method, response.request.content)
        self.answered.add(name)
        # The servers of this test refuse nothing in this way.
        if response.status_code >= 400:
            text = (await response.aread()).decode()
            self.denial = {"status": response.status_code, "body": parsed(text)}


def parsed(text: str):
    try:
        return json.loads(text)
    except ValueError:
        return text


def answered(properties: dict) -> dict:
    """A user's answer to a question with these properties."""
    return {name: USER[name] for name in properties}


async def read_line():
    # In a thread, so that streams are read meanwhile.
    return json.loads(await anyio.to_thread.run_sync(sys.stdin.readline) or '["close"]')


def write_line(answer: dict) -> None:
    print(json.dumps(answer), flush=True)


async def perform(hooks: Hooks, action) -> None:
    """Performs an action, and writes its result."""
    hooks.denial = None
    try:
        write_line({"ok": await action()})
    except Exception as error:
        write_line({"error": "".join(traceback.format_exception(error)), "denial": hooks.denial})
