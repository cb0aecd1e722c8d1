"""Real HTTP servers for tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import credence

from .minting import AUDIENCE, decide

RULES: dict[str, Any] = {
    "credence_agent_rules": 1,
    "issuers": ["https://id.example.com"],
    "audience": [AUDIENCE],
    "holder_algorithms": ["Ed25519", "ES256"],
    "rules": [
        {
            "name": "charge",
            "match": {"methods": ["POST"], "path": "/v1/accounts/{account}/charges"},
            "tool": "payments.charge",
            "args": {"account": {"path": "account"}, "amount": {"query": "amount", "type": "number"}},
            "ignore_body": True,
        },
        {
            "name": "refund",
            "match": {"methods": ["POST"], "path": "/v1/refunds"},
            "tool": "payments.charge",
            "args": {"account": {"body": "/account"}, "amount": {"body": "/amount", "type": "number"}},
        },
        {"name": "health", "match": {"path": "/healthz"}, "public": True},
    ],
}
"""The rules of the service in these tests: one reads no body, one reads it, one asks for nothing."""

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        return [value for header, value in self.headers if header.lower() == name]


@dataclass
class Server:
    """A server that records requests and lets a function answer them."""

    answer: Callable[[Seen], Answer]
    origin: str = ""
    seen: list[Seen] = field(default_factory=list)

    def calls(self) -> list[Seen]:
        """The requests, apart from those for rules."""
        return [seen for seen in self.seen if "/.well-known/" not in seen.target]


@contextmanager
def serving(answer: Callable[[Seen], Answer]) -> Iterator[Server]:
    """Runs a server on a free port of this machine."""
    server = Server(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            seen = Seen(self.command, self.path, list(self.headers.items()), self.read_body())
            server.seen.append(seen)
            status, headers, body = server.answer(seen)
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def read_body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keeps the output of tests clean."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.origin = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()


class Payments:
    """The payments service with a check in front of it, as the filter would make it."""

    def __init__(self, issuer: credence.Key) -> None:
        self.issuer = issuer
        self.rules: Any = RULES
        self.rules_headers: dict[str, str] = {}
        self.nonce: str | None = None
        self.redirect: tuple[int, str] | None = None
        self.proofs: set[str] = set()

    def __call__(self, seen: Seen) -> Answer:
        url = urlsplit(seen.target)
        if url.path == "/.well-known/credence-agent-rules":
            return 200, self.rules_headers, json.dumps(self.rules).encode()
        if url.path == "/healthz":
            return 200, {}, b"ok"
        if url.path == "/moved" and self.redirect:
            return self.redirect[0], {"location": self.redirect[1]}, b""
        delegations, proofs = seen.values("delegation"), seen.values("delegation-proof")
        if len(delegations) != 1 or len(proofs) != 1 or proofs[0] in self.proofs:
            return self.denied(401, "delegation_missing")
        self.proofs.add(proofs[0])
        policy = {"nonce": self.nonce} if self.nonce else {}
        answer = decide(self.issuer, delegations[0], "payments.charge", self.arguments(seen), proofs[0], **policy)
        if answer["decision"] == "allow":
            return 200, {}, seen.body
        return self.denied(401, str(answer["reason"]))

    def arguments(self, seen: Seen) -> dict[str, Any]:
        url = urlsplit(seen.target)
        if url.path == "/v1/refunds":
            return dict(json.loads(seen.body))
        return {"account": url.path.split("/")[3], "amount": json.loads(parse_qs(url.query)["amount"][0])}

    def denied(self, status: int, reason: str) -> Answer:
        headers = {"delegation-nonce": self.nonce} if self.nonce else {}
        return status, headers, json.dumps({"reason": reason}).encode()
