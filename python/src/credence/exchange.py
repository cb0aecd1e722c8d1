"""One HTTP request of an agent through a client of the httpx family, sent at most twice.

`httpx` and `httpx2`, which the MCP client uses, have the same interface but different classes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any, TypeVar

from .agent import Agent
from .errors import InputError
from .origin import Origin
from .service import MAX_BODY, Request, Service

_Result = TypeVar("_Result")

# The classes of either library.
_HttpRequest = Any
_HttpResponse = Any
_HttpHeaders = Any


class ExchangeAuth:
    """The authentication flows. A subclass joins this with the `Auth` of its library.

    Args:
        agent: The agent.
    """

    _headers: type[_HttpHeaders]

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def sync_auth_flow(self, request: _HttpRequest) -> Generator[_HttpRequest, _HttpResponse, None]:
        """The flow of a synchronous client.

        Raises:
            Denied: The service would deny the request. Nothing is sent.
            CredenceError: The rules, the request or the key cannot be used. Nothing is sent.
        """
        exchange = _Exchange.of(self.agent, request, self._headers)
        if exchange is None:
            yield request
            return
        try:
            if exchange.start():
                if not exchange.is_body_in_memory():
                    request.stream = _Bounded(request.stream)
                request.read()
            exchange.attach()
            if exchange.needs_repetition((yield request)):
                exchange.attach()
                exchange.needs_repetition((yield request))
        finally:
            exchange.detach()

    async def async_auth_flow(self, request: _HttpRequest) -> AsyncGenerator[_HttpRequest, _HttpResponse]:
        """The flow of an asynchronous client. Waiting for rules or a remote signer happens in a worker thread.

        Raises:
            Denied: The service would deny the request. Nothing is sent.
            CredenceError: The rules, the request or the key cannot be used. Nothing is sent.
        """
        exchange = _Exchange.of(self.agent, request, self._headers)
        if exchange is None:
            yield request
            return
        try:
            if await exchange.run(exchange.start):
                if not exchange.is_body_in_memory():
                    request.stream = _AsyncBounded(request.stream)
                await request.aread()
            await exchange.run(exchange.attach)
            if exchange.needs_repetition((yield request)):
                await exchange.run(exchange.attach)
                exchange.needs_repetition((yield request))
        finally:
            exchange.detach()


class _Exchange:
    def __init__(self, agent: Agent, service: Service, request: _HttpRequest, headers: type[_HttpHeaders]) -> None:
        self.agent = agent
        self.service = service
        self.request = request
        self.plain = headers(request.headers)
        self.hidden = _hidden(headers)
        self.reads_body = False
        self.nonce: str | None = None

    @classmethod
    def of(cls, agent: Agent, request: _HttpRequest, headers: type[_HttpHeaders]) -> _Exchange | None:
        """The exchange, if the request is for one of the agent's services."""
        url = request.url
        service = agent.service(Origin.of(url.scheme, url.raw_host.decode("ascii"), url.port))
        return None if service is None else cls(agent, service, request, headers)

    async def run(self, task: Callable[[], _Result]) -> _Result:
        if not self.agent.waits_for(self.service):
            return task()
        from anyio import to_thread  # Both libraries depend on it.

        return await to_thread.run_sync(task)

    def start(self) -> bool:
        """Gets the rules. Whether they read the body."""
        origin = self.service.origin
        host = self.plain.get("host", origin.authority)
        if Origin.parse(f"{origin.scheme}://{host}") != origin:
            raise InputError(
                f"the request's Host header is {host!r}, but the service is {origin}; leave the header out"
            )
        self.rules = self.service.rules()
        self.reads_body = self.rules.reads_body(self._described())
        return self.reads_body

    def attach(self) -> None:
        """Puts the credential, with a new proof, into the request's headers."""
        agent = self.agent
        self.nonce = self.service.nonce
        presentation = self.rules.present(self._described(), agent.credential, agent.signer, nonce=self.nonce)
        visible = self.plain.copy()
        for name, _ in (*presentation.headers, ("delegation", ""), ("delegation-proof", "")):
            visible.pop(name, None)
        headers = self.hidden(visible, presentation.headers)
        if type(self.plain)(headers) != visible:
            raise InputError("this version of the HTTP client copies credentials to redirects; use a supported version")
        self.request.headers = headers

    def detach(self) -> None:
        """Takes the credential off the request, which logs and the caller may show."""
        self.request.headers = self.plain

    def needs_repetition(self, response: _HttpResponse) -> bool:
        """Keeps the answer's nonce. Whether the service only asked for it, and the body can be sent again."""
        if response.request is not self.request:
            return False  # After a redirect, the answer may be another service's.
        may_succeed = self.service.remember_nonce(response.status_code, response.headers, used=self.nonce)
        return may_succeed and self.is_body_in_memory()

    def is_body_in_memory(self) -> bool:
        try:
            return self.request.content is not None
        except RuntimeError:  # RequestNotRead, of either library
            return False

    def _described(self) -> Request:
        request, headers = self.request, self.plain
        body = request.content if self.reads_body else b""
        return Request(
            method=request.method,
            target=request.url.raw_path.decode("ascii"),
            headers=[(name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in headers.raw],
            has_body="transfer-encoding" in headers or headers.get("content-length", "0") != "0",
            body=body[: MAX_BODY + 1],
        )


def _hidden(headers: type[_HttpHeaders]) -> type[_HttpHeaders]:
    """Headers that are sent with credentials, but shown and copied without them.

    When the clients follow a redirect, to any host, they copy the request's headers. What they send is `raw`.
    """

    class Hidden(headers):  # type: ignore[misc]
        def __init__(self, visible: _HttpHeaders, credentials: tuple[tuple[str, str], ...]) -> None:
            super().__init__(visible)
            self._credentials = [(name.encode(), value.encode()) for name, value in credentials]

        @property
        def raw(self) -> list[tuple[bytes, bytes]]:
            return [*super().raw, *self._credentials]

    return Hidden


class _Bounded:
    """A body that fails beyond what any rule reads."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size = _checked(size + len(chunk))
            yield chunk


class _AsyncBounded:
    """Like `_Bounded`, for asynchronous clients."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size = _checked(size + len(chunk))
            yield chunk


def _checked(size: int) -> int:
    if size > MAX_BODY:
        raise InputError(f"the body is larger than the {MAX_BODY} bytes that a rule can read; send a shorter one")
    return size
