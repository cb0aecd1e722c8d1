"""An MCP server on the official Python SDK that speaks every version with Streamable HTTP.

It offers what the conformance suite's scenarios ask for, by the names that they use.

Usage: everything.py PORT LOG. LOG gets one line of JSON for each tool call, prompt and read that ran.
"""

import asyncio
import base64
import functools
import json
import sys
from contextvars import ContextVar
from typing import Annotated, Any

from mcp.server import ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequiredResult,
    JSONRPCMessage,
    ListRootsRequest,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel, Field

PORT, LOG = int(sys.argv[1]), sys.argv[2]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

# Of the tool call or prompt that runs, as the client sent them.
arguments_sent: ContextVar[dict[str, Any]] = ContextVar("arguments_sent")


def record(ran: dict[str, Any]) -> None:
    with open(LOG, "a", encoding="utf-8") as log:
        log.write(json.dumps(ran) + "\n")


class RecordingServer(MCPServer):
    async def call_tool(self, name, arguments, context=None):
        arguments_sent.set(arguments)
        return await super().call_tool(name, arguments, context)

    async def get_prompt(self, name, arguments=None, context=None):
        result = await super().get_prompt(name, arguments, context)
        record({"prompt": name, "arguments": arguments or {}})
        return result

    async def read_resource(self, uri, context=None):
        result = await super().read_resource(uri, context)
        record({"resource": str(uri)})
        return result


server = RecordingServer(
    name="everything",
    version="1.0.0",
    # It has only to last as long as this process.
    request_state_security=RequestStateSecurity(keys=[b"a key of this test that nothing else uses"]),
)


def tool(function):
    """Registers a tool that is recorded when it runs."""

    @functools.wraps(function)
    async def recorded(*args, **kwargs):
        record({"tool": function.__name__, "arguments": arguments_sent.get()})
        result = function(*args, **kwargs)
        return await result if asyncio.iscoroutine(result) else result

    return server.tool(description=f"Tests {function.__name__}.")(recorded)


def prompt(function):
    return server.prompt(description=f"Tests {function.__name__}.")(function)


def text(value: str) -> TextContent:
    return TextContent(type="text", text=value)


def image() -> ImageContent:
    return ImageContent(type="image", data=PNG, mime_type="image/png")


def resource(uri: str, value: str, mime_type: str = "text/plain") -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, mime_type=mime_type, text=value)
    return EmbeddedResource(type="resource", resource=contents)


# Tools that answer with each kind of content.


@tool
def test_simple_text() -> str:
    return "This is a simple text response for testing."


@tool
def test_image_content() -> list[ImageContent]:
    return [image()]


@tool
def test_audio_content() -> list[AudioContent]:
    return [AudioContent(type="audio", data=WAV, mime_type="audio/wav")]


@tool
def test_embedded_resource() -> list[EmbeddedResource]:
    return [resource("test://embedded-resource", "This is an embedded resource content.")]


@tool
def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    data = json.dumps({"test": "data", "value": 123})
    mixed = resource("test://mixed-content-resource", data, "application/json")
    return [text("Multiple content types test:"), image(), mixed]


@tool
def test_error_handling() -> str:
    raise RuntimeError("This tool intentionally returns an error for testing")


@tool
def json_schema_2020_12_tool() -> str:
    return "json_schema_2020_12_tool"


# Every keyword of JSON Schema 2020-12 that has to reach the client. The SDK makes schemas from types, which cannot say
# this.
server._tool_manager.get_tool("json_schema_2020_12_tool").parameters = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


# Tools that send notifications before their result.


@tool
async def test_tool_with_logging(ctx: Context) -> str:
    for step in ("started", "processing", "completed"):
        await ctx.info(f"Tool execution {step}")
        await asyncio.sleep(0.05)
    return "Tool with logging executed successfully"


@tool
async def test_tool_with_progress(ctx: Context) -> str:
    for progress in (0, 50, 100):
        await ctx.report_progress(progress=progress, total=100, message=f"Completed step {progress} of 100")
        await asyncio.sleep(0.05)
    return "done"


@tool
async def test_reconnection(ctx: Context) -> str:
    await ctx.close_sse_stream()
    await asyncio.sleep(0.2)
    return "Reconnection test completed"


# Of 2026-07-28: without requests of its own, and without log messages that the client did not ask for.


@tool
async def test_streaming_elicitation() -> str:
    return "no requests on this stream"


@tool
async def test_logging_tool(ctx: Context) -> str:
    await ctx.info("test_logging_tool runs")
    return "logged if the client asked for it"


# Tools that ask the client by requests of the server, as before 2026-07-28.


@tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    # On the stream of this call: otherwise the request needs the stream that a client may open besides.
    answer = await ctx.session.create_message(
        messages=[SamplingMessage(role="user", content=text(prompt))], max_tokens=100, related_request_id=ctx.request_id
    )
    return f"LLM response: {answer.content.text}"


async def elicit(ctx: Context, message: str, schema: type[BaseModel]) -> str:
    result = await ctx.elicit(message=message, schema=schema)
    content = result.data.model_dump_json() if result.action == "accept" else "{}"
    return f"Elicitation completed: action={result.action}, content={content}"


class Answer(BaseModel):
    response: str = Field(description="The answer")


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: str = Field(default="active", json_schema_extra={"enum": ["active", "inactive", "pending"]})
    verified: bool = True


OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": option, "title": f"Title of {option}"} for option in OPTIONS]


class Choices(BaseModel):
    """Each way to offer a choice."""

    untitledSingle: str = Field(json_schema_extra={"enum": OPTIONS})
    titledSingle: str = Field(json_schema_extra={"oneOf": TITLED})
    untitledMulti: list[str] = Field(json_schema_extra={"items": {"type": "string", "enum": OPTIONS}})
    titledMulti: list[str] = Field(json_schema_extra={"items": {"anyOf": TITLED}})
    legacyEnum: str = Field(json_schema_extra={"enum": OPTIONS, "enumNames": [f"Name of {name}" for name in OPTIONS]})


@tool
async def test_elicitation(message: str, ctx: Context) -> str:
    return await elicit(ctx, message, Answer)


@tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    return await elicit(ctx, "Please check these values", Defaults)


@tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    return await elicit(ctx, "Please choose", Choices)


# Tools that ask the client by their results, as from 2026-07-28 on.


def ask(message: str, name: str, kind: str = "string") -> ElicitRequest:
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def ask_name() -> ElicitRequest:
    return ask("What is your name?", "name")


def ask_model(question: str) -> CreateMessageRequest:
    messages = [SamplingMessage(role="user", content=text(question))]
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=messages, max_tokens=100))


def answer(ctx: Context, request: str) -> Any:
    return (ctx.input_responses or {}).get(request)


def given(ctx: Context, request: str, name: str) -> Any:
    """What the user gave, if the user accepted."""
    found = answer(ctx, request)
    return (getattr(found, "content", None) or {}).get(name)


@tool
async def test_missing_capability(ctx: Context) -> str:
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message="sampling is needed", data=data)
    return "answered"


@tool
async def test_input_required_result_elicitation(ctx: Context) -> str | InputRequiredResult:
    name = given(ctx, "user_name", "name")
    return f"Hello, {name}!" if name else InputRequiredResult(input_requests={"user_name": ask_name()})


@tool
async def test_input_required_result_sampling(ctx: Context) -> str | InputRequiredResult:
    found = answer(ctx, "capital_question")
    if found:
        return f"Sampling response: {found.content.text}"
    return InputRequiredResult(input_requests={"capital_question": ask_model("What is the capital of France?")})


@tool
async def test_input_required_result_list_roots(ctx: Context) -> str | InputRequiredResult:
    found = answer(ctx, "client_roots")
    if found:
        return f"The client has roots: {', '.join(str(root.uri) for root in found.roots)}"
    return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})


async def confirmed(ctx: Context) -> str | InputRequiredResult:
    if answer(ctx, "confirm") and ctx.request_state == "asked":
        return "state-ok: requestState verified"
    return InputRequiredResult(
        input_requests={"confirm": ask("Please confirm", "ok", "boolean")}, request_state="asked"
    )


@tool
async def test_input_required_result_request_state(ctx: Context) -> str | InputRequiredResult:
    return await confirmed(ctx)


@tool
async def test_input_required_result_tampered_state(ctx: Context) -> str | InputRequiredResult:
    return await confirmed(ctx)


@tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str | InputRequiredResult:
    if all(answer(ctx, request) for request in ("user_name", "greeting", "client_roots")):
        return "all answered"
    greeting = ask_model("Generate a greeting")
    requests = {"user_name": ask_name(), "greeting": greeting, "client_roots": ListRootsRequest()}
    return InputRequiredResult(input_requests=requests, request_state="asked")


@tool
async def test_input_required_result_multi_round(ctx: Context) -> str | InputRequiredResult:
    state = json.loads(ctx.request_state or '{"round": 0}')
    if state["round"] == 0:
        step1 = ask("Step 1: What is your name?", "name")
        return InputRequiredResult(input_requests={"step1": step1}, request_state=json.dumps({"round": 1}))
    if state["round"] == 1:
        step2 = ask("Step 2: What is your favourite colour?", "color")
        following = json.dumps({"round": 2, "name": given(ctx, "step1", "name")})
        return InputRequiredResult(input_requests={"step2": step2}, request_state=following)
    return f"{state['name']} likes {given(ctx, 'step2', 'color')}"


@tool
async def test_input_required_result_capabilities(ctx: Context) -> str | InputRequiredResult:
    can = ctx.client_capabilities
    requests: dict[str, Any] = {}
    if can and can.sampling:
        requests["greeting"] = ask_model("Generate a greeting")
    if can and can.elicitation:
        requests["user_name"] = ask_name()
    return InputRequiredResult(input_requests=requests, request_state="asked") if requests else "nothing to ask"


# Tools that tell subscriptions about changes.


@tool
async def test_trigger_tool_change(ctx: Context) -> str:
    await ctx.notify_tools_changed()
    return "told"


@tool
async def test_trigger_prompt_change(ctx: Context) -> str:
    await ctx.notify_prompts_changed()
    return "told"


# A tool with an argument that clients repeat in a header.


@tool
def test_x_mcp_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "", level: int = 0
) -> str:
    return f"region={region}"


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    return base64.b64decode(PNG)


@server.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    return "Watched resource content"


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@prompt
def test_simple_prompt() -> list[UserMessage]:
    return [UserMessage(content=text("This is a simple prompt for testing."))]


@prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
    return [UserMessage(content=text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]


@prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
    embedded = resource(resourceUri, "Embedded resource content for testing.")
    return [UserMessage(content=embedded), UserMessage(content=text("Please process this resource."))]


@prompt
def test_prompt_with_image() -> list[UserMessage]:
    return [UserMessage(content=image()), UserMessage(content=text("Please analyze this image."))]


@prompt
async def test_input_required_result_prompt(ctx: Context) -> list[UserMessage] | InputRequiredResult:
    found = given(ctx, "user_context", "context")
    if found:
        return [UserMessage(content=text(f"Use the following context: {found}"))]
    return InputRequiredResult(input_requests={"user_context": ask("Which context?", "context")})


@server.completion()
async def complete(ref, argument, context) -> Completion:
    return Completion(values=[], total=0, has_more=False)


async def nothing(ctx: ServerRequestContext, params: Any) -> EmptyResult:
    return EmptyResult()


# MCPServer has no way to handle these; the server below it does.
for method, params in (
    ("logging/setLevel", SetLevelRequestParams),
    ("resources/subscribe", SubscribeRequestParams),
    ("resources/unsubscribe", UnsubscribeRequestParams),
):
    server._lowlevel_server.add_request_handler(method, params, nothing)


class Events(EventStore):
    """The events of all sessions, so that a client can continue a stream that broke."""

    def __init__(self) -> None:
        self.events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream_id, _ = self.events[last - 1]
        for number, (stream, message) in enumerate(self.events[last:], last + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


# Envoy removes the port from the host (strip_any_host_port), which the SDK's own list demands.
HOSTS = [host + port for host in ("127.0.0.1", "localhost") for port in ("", ":*")]
SECURITY = TransportSecuritySettings(allowed_hosts=HOSTS, allowed_origins=[f"http://{host}" for host in HOSTS])

server.run(
    transport="streamable-http", port=PORT, event_store=Events(), retry_interval=100, transport_security=SECURITY
)
