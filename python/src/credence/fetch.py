"""Fetching the rules that a service publishes for its agents."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from typing import IO

from .errors import RulesError
from .origin import Origin

WELL_KNOWN = "/.well-known/credence-agent-rules"
"""The path of the rules (RFC 8615)."""

MAX_DOCUMENT = 8 << 20
"""The size of the rules, in bytes."""

DEFAULT_AGE = 300
"""How long rules count if the service does not say it, in seconds."""

MAX_AGE = 86_400
"""How long rules count at most, in seconds."""

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Document:
    """The published rules, and how long they count, in seconds."""

    content: bytes
    max_age: int


def fetch(origin: Origin, *, timeout: float, tls: ssl.SSLContext | None) -> Document:
    """Fetches the rules of a service. Follows no redirect. Uses the system's proxies, except for this machine.

    Args:
        origin: The service.
        timeout: For each address that is tried, and for the transfer, in seconds.
        tls: Which certificates are trusted. None: those that the system trusts.

    Raises:
        RulesError: The rules cannot be had in the allowed way, time or size.
    """
    url = f"{origin}{WELL_KNOWN}"
    if origin.scheme != "https" and not origin.is_loopback:
        raise RulesError(f"{url}: rules are fetched over https only; use https, or give the rules in a file")
    deadline = time.monotonic() + timeout
    try:
        return _transfer(_opener(origin, tls), url, timeout)
    except urllib.error.HTTPError as error:
        with error:
            raise RulesError(f"{url}: {_unexpected(error)}") from None
    except (OSError, ValueError, RuntimeError, http.client.HTTPException) as error:
        if time.monotonic() >= deadline:
            raise RulesError(f"{url}: no complete answer within {timeout:g} seconds") from None
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise RulesError(f"{url}: the rules cannot be fetched: {reason}") from error


def max_age(cache_control: list[str]) -> int:
    """How long an answer with these `Cache-Control` headers counts, in seconds (RFC 9111, section 5.2.2)."""
    directives = [directive.strip().lower() for header in cache_control for directive in header.split(",")]
    if "no-store" in directives or "no-cache" in directives:
        return 0
    for directive in directives:
        if match := re.fullmatch(r'max-age="?([0-9]{1,20})"?', directive):
            return min(int(match[1]), MAX_AGE)
    return DEFAULT_AGE


def _opener(origin: Origin, tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects(), _Handler()]
    if origin.scheme == "https":
        handlers.append(_TlsHandler(tls or ssl.create_default_context()))
    if origin.is_loopback:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _transfer(opener: urllib.request.OpenerDirector, url: str, timeout: float) -> Document:
    deadline = time.monotonic() + timeout
    # The caller has checked the scheme.
    request = urllib.request.Request(url, headers={"accept": "application/json", "user-agent": "credence-agent"})  # noqa: S310
    with opener.open(request, timeout=timeout) as response:
        if response.status != 200:
            raise RulesError(f"{url}: the answer has status {response.status}, not 200")
        content = bytearray()
        while chunk := response.read1(_CHUNK):
            content += chunk
            if len(content) > MAX_DOCUMENT:
                raise RulesError(f"{url}: the rules are larger than {MAX_DOCUMENT} bytes")
        if time.monotonic() >= deadline:  # Then the connection may have been ended before its end.
            raise TimeoutError
        return Document(bytes(content), max_age(response.headers.get_all("cache-control", [])))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0913, PLR0917 - the signature is the library's
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Refuses: then the opener raises an `HTTPError` with the redirect's status."""
        return


def _unexpected(error: urllib.error.HTTPError) -> str:
    if 300 <= error.code < 400:
        return "redirects are not followed; name the origin that publishes the rules"
    if error.code in {403, 404}:
        return "the service publishes no rules there; ask its operators, or give the rules in a file"
    return f"the answer has status {error.code}, not 200"


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _end_after(self.timeout, self.sock)


class _TlsConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        _end_after(self.timeout, self.sock)


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _TlsHandler(urllib.request.HTTPSHandler):
    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(context=tls)
        self._tls = tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, req, context=self._tls)


def _end_after(seconds: float | None, connection: socket.socket) -> None:
    """Ends a connection that takes too long. Its own timeout bounds each read, not one that brings a byte at a time."""

    def end() -> None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)

    timer = threading.Timer(seconds or 0, end)
    timer.daemon = True
    timer.start()
