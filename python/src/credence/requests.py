"""Delegations for `requests`.

    session.mount("https://", DelegationAdapter(agent))

An adapter sees each request of a redirect, so each gets its own proof, and those to other origins get none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import parse_url

from .agent import Agent
from .errors import InputError
from .origin import Origin
from .service import MAX_BODY, Presentation, Request


class DelegationAdapter(HTTPAdapter):
    """Presents the agent's credential to its services. Requests to other origins are sent unchanged.

    A body is read only if the service's rule reads it, and then at most 1 MiB. If the service asks for a nonce, the
    request is sent a second time, unless its body is a stream that is already spent.

    Args:
        agent: The agent.
        options: The options of `HTTPAdapter`.
    """

    def __init__(self, agent: Agent, **options: Any) -> None:
        super().__init__(**options)
        self.agent = agent

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Sends one request.

        Raises:
            Denied: The service would deny the request. Nothing is sent.
            CredenceError: The rules, the request or the key cannot be used. Nothing is sent.
        """
        url = parse_url(request.url or "")
        service = self.agent.service(Origin.of(url.scheme or "", url.host or "", url.port))
        if service is None:
            return super().send(request, *args, **options)
        host = request.headers.get("host", service.origin.authority)
        if Origin.parse(f"{service.origin.scheme}://{host}") != service.origin:
            raise InputError(
                f"the request's Host header is {host!r}, but the service is {service.origin}; leave it out"
            )
        rules = service.rules()
        request = request.copy()
        reads_body = rules.reads_body(_described(request, reads_body=False))
        if reads_body:
            _read_body(request)
        for is_last in (False, True):
            nonce = service.nonce
            described = _described(request, reads_body=reads_body)
            presentation = rules.present(described, self.agent.credential, self.agent.signer, nonce=nonce)
            try:
                response = super().send(_presenting(request, presentation), *args, **options)
            except requests.RequestException as error:
                error.request = request  # Without the credential, which callers might log.
                raise
            may_succeed = service.remember_nonce(response.status_code, response.headers, used=nonce)
            if is_last or not may_succeed or not isinstance(request.body, str | bytes | None):
                break
            response.content  # noqa: B018 - reads the answer, so that the connection can be used again
            response.close()
        response.request = request  # Again without it.
        return response


def _presenting(request: requests.PreparedRequest, presentation: Presentation) -> requests.PreparedRequest:
    sent = request.copy()
    for name in ("delegation", "delegation-proof"):
        sent.headers.pop(name, None)
    sent.headers.update(presentation.headers)
    return sent


def _described(request: requests.PreparedRequest, *, reads_body: bool) -> Request:
    headers = request.headers
    body = request.body if reads_body else b""
    return Request(
        method=request.method or "GET",
        target=request.path_url,
        headers=[(_text(name), _text(value)) for name, value in headers.items()],
        has_body="transfer-encoding" in headers or _text(headers.get("content-length", "0")) != "0",
        body=(body.encode() if isinstance(body, str) else body or b"")[: MAX_BODY + 1],
    )


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _read_body(request: requests.PreparedRequest) -> None:
    """Takes a streamed body into memory."""
    stream: Any = request.body
    if stream is None or isinstance(stream, str | bytes):
        return
    chunks: Iterable[bytes] = [stream.read(MAX_BODY + 1)] if hasattr(stream, "read") else stream
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MAX_BODY:
            raise InputError(f"the body is larger than the {MAX_BODY} bytes that a rule can read; send a shorter one")
    request.headers.pop("transfer-encoding", None)
    request.headers["content-length"] = str(len(body))
    request.body = bytes(body)
