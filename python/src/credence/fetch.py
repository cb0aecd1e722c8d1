"""Fetching the rules that a service publishes for its agents."""

from __future__ import annotations

import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from typing import IO, TypeVar

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
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Document:
    """The published rules, and how long they count, in seconds."""

    content: bytes
    max_age: int


def fetch(origin: Origin, *, timeout: float, tls: ssl.SSLContext | None) -> Document:
    """Fetches the rules of a service. Follows no redirect. Uses the system's proxies, except for this machine.

    Args:
        origin: The service.
        timeout: For the whole transfer, in seconds.
        tls: Which certificates are trusted. None: those that the system trusts.

    Raises:
        RulesError: The rules cannot be had in the allowed way, time or size.
    """
    url = f"{origin}{WELL_KNOWN}"
    if origin.scheme != "https" and not origin.is_loopback:
        raise RulesError(f"{url}: rules are fetched over https only; use https, or give the rules in a file")
    opener = _opener(origin, tls)
    try:
        return _within(timeout, lambda: _transfer(opener, url, timeout))
    except urllib.error.HTTPError as error:
        with error:
            raise RulesError(f"{url}: {_unexpected(error)}") from None
    except TimeoutError:
        raise RulesError(f"{url}: no complete answer within {timeout:g} seconds") from None
    except (OSError, ValueError, RuntimeError) as error:
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
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if origin.scheme == "https":
        handlers.append(urllib.request.HTTPSHandler(context=tls or ssl.create_default_context()))
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
            if time.monotonic() > deadline:
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
    if error.code == 404:
        return "the service publishes no rules there; ask its operators, or give the rules in a file"
    return f"the answer has status {error.code}, not 200"


def _within(seconds: float, task: Callable[[], _Result]) -> _Result:
    # In a thread: a socket's timeout bounds each read, not a header that arrives byte by byte.
    results: list[_Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(task())
        except Exception as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run, name="credence-rules", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]
