"""Services that agents call: their rules, and what a request must present."""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import jws
from .delegation import Delegation
from .errors import InputError, RulesError
from .fetch import MAX_AGE, MAX_DOCUMENT, Document, fetch
from .keys import Key, Signer
from .module import InstanceGone, shared
from .origin import Origin

MAX_NONCE = 256
"""The length of a nonce that is kept. A longer one is ignored."""

MAX_BODY = 1 << 20
"""The greatest body that any rule reads, in bytes."""

RETRY_AFTER = 30
"""After a failed refresh, the old rules count for so long, in seconds. At most `MAX_AGE` after they were fetched."""

LEAST_AGE = 30
"""How long rules count at least, in seconds, also if the service says less."""

PAUSE = 2
"""After a failure without known rules, nothing is fetched for so long, in seconds."""

_log = logging.getLogger("credence")


@dataclass(frozen=True)
class AccessToken:
    """An access token (RFC 9068) that grants tools. Bound to a key, it goes with DPoP proofs (RFC 9449)."""

    text: str = field(repr=False)


@dataclass(frozen=True)
class Request:
    """One HTTP request to a service.

    Attributes:
        method: The method.
        target: Path and query, exactly as sent, such as `/v1/accounts/a1/charges?amount=15`.
        headers: Names and values in the order of sending, without pseudo headers.
        has_body: Whether a body is sent.
        body: All of the body, if `Rules.reads_body` asks for it.
    """

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()
    has_body: bool = False
    body: bytes = field(default=b"", repr=False)

    def written(self) -> dict[str, Any]:
        """The request in the module's form. `Host` is left out: the origin determines it."""
        headers = [(name, value) for name, value in self.headers if name.lower() not in _REPLACED]
        return {"method": self.method, "target": self.target, "headers": headers, "has_body": self.has_body}


_REPLACED = frozenset({"host", "delegation", "delegation-proof"})


@dataclass(frozen=True)
class Presentation:
    """What a request presents.

    Attributes:
        headers: The headers to send, in place of any with the same names.
        rule: The name of the rule. None: no rule asks for anything.
        tool: The tool that the credential grants, if the rule names one.
        arguments: The arguments, as the rule takes them from the request.
        needs_nonce: Whether the service asks for a nonce in the proof.
        needs_certificate: Whether the connection's client certificate is the proof. Then the HTTP client needs it.
    """

    headers: tuple[tuple[str, str], ...] = field(repr=False)
    rule: str | None
    tool: str | None
    arguments: Mapping[str, Any] | None
    needs_nonce: bool
    needs_certificate: bool


class Service:
    """A service: its origin, the audience of its proofs, and its rules.

    The rules come from the service, so they are not trusted. They count only for requests to `origin`. Proofs are
    only for `audience`, and only for tools and arguments that the delegation grants.

    Args:
        origin: Scheme and host, such as `https://payments.example`.
        audience: The names that proofs may be for. Without any: names at the origin.
        timeout: For fetching the rules, in seconds.
        tls: Which certificates are trusted when the rules are fetched. None: those that the system trusts.

    Raises:
        InputError: The origin is not one.
    """

    def __init__(
        self,
        origin: str,
        *,
        audience: str | Sequence[str] = (),
        timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.origin = Origin.parse(origin)
        self.audience = (audience,) if isinstance(audience, str) else tuple(audience)
        self.nonce: str | None = None
        self._timeout = timeout
        self._tls = tls
        self._lock = threading.Lock()
        self._rules: Rules | None = None
        self._problem = ""
        self._fetched_at = 0.0
        self._fresh_until = 0.0

    @classmethod
    def from_document(cls, origin: str, document: bytes | str, *, audience: str | Sequence[str] = ()) -> Service:
        """A service whose rules are at hand: the JSON of `credence config describe --for-agents`. Nothing is fetched.

        Raises:
            InputError: The origin is not one.
            RulesError: The rules cannot be used.
        """
        service = cls(origin, audience=audience)
        content = document.encode() if isinstance(document, str) else document
        service._rules = Rules(service.origin, service.audience, content)
        service._fresh_until = float("inf")
        return service

    @classmethod
    def from_file(cls, origin: str, path: str | os.PathLike[str], *, audience: str | Sequence[str] = ()) -> Service:
        """A service whose rules are in a file. See `from_document`."""
        with Path(path).open("rb") as file:
            content = file.read(MAX_DOCUMENT + 1)
        if len(content) > MAX_DOCUMENT:
            raise RulesError(f"{os.fspath(path)}: the rules are larger than {MAX_DOCUMENT} bytes")
        return cls.from_document(origin, content, audience=audience)

    def is_fresh(self) -> bool:
        """Whether `rules` answers without fetching."""
        return self._rules is not None and time.monotonic() < self._fresh_until

    def rules(self) -> Rules:
        """The current rules. Fetches them if there are none, or if they are too old.

        Raises:
            RulesError: They cannot be fetched or used.
        """
        with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._refresh()
            if self._rules is None:
                raise RulesError(self._problem)
            return self._rules

    def _refresh(self) -> None:
        started = time.monotonic()
        try:
            document: Document = fetch(self.origin, timeout=self._timeout, tls=self._tls)
            self._rules = Rules(self.origin, self.audience, document.content)
        except RulesError as error:
            # The service decides anyway, so old rules do no harm while new ones cannot be had.
            if self._rules is None or started > self._fetched_at + MAX_AGE:
                self._rules, self._problem = None, str(error)
                self._fresh_until = time.monotonic() + PAUSE
                return
            _log.warning("the rules are not refreshed: %s", error)
            self._fresh_until = started + RETRY_AFTER
        else:
            self._fetched_at = started
            self._fresh_until = started + max(document.max_age, LEAST_AGE)

    def remember_nonce(self, status: int, headers: Mapping[str, str], *, used: str | None) -> bool:
        """Keeps the nonce of an answer for the next proofs. Returns whether the request may succeed with it.

        Args:
            status: The status of the answer.
            headers: The headers; names are looked up in lower case.
            used: The nonce that the request's proof had.
        """
        nonce = headers.get("delegation-nonce") or headers.get("dpop-nonce")
        if not nonce or len(nonce) > MAX_NONCE:
            return False
        self.nonce = nonce
        return status == 401 and nonce != used

    def __repr__(self) -> str:
        return f"<Service {self.origin}>"


class Rules:
    """The rules of a service, at one time.

    Raises:
        RulesError: The rules cannot be used, or are for another audience.
    """

    def __init__(self, origin: Origin, audience: Sequence[str], content: bytes) -> None:
        self._operation = {"open": {"origin": str(origin), "audience": list(audience)}}
        self._origin = origin
        self._content = content
        self._open()

    @property
    def issuers(self) -> tuple[str, ...]:
        """The issuers whose delegations the service accepts, as it says."""
        return self._issuers

    def reads_body(self, request: Request) -> bool:
        """Whether the request's body must be known before `present`.

        Raises:
            Denied: The service would deny the request.
        """
        answer = self._call("reads_body", {"request": request.written()})
        return bool(answer["reads_body"])

    def present(
        self,
        request: Request,
        credential: Delegation | AccessToken,
        signer: Signer | None = None,
        *,
        nonce: str | None = None,
    ) -> Presentation:
        """What a request must present, with a new proof if the rule asks for one.

        Args:
            request: The request, with its body if `reads_body` says so.
            credential: The delegation or access token.
            signer: The key of the credential's holder. None: an access token without a key.
            nonce: The latest nonce of the service.

        Raises:
            Denied: The service would deny the request.
            InputError: The request or the credential cannot be used.
        """
        operation: dict[str, Any] = {
            "request": request.written(),
            "credential": _written(credential, signer),
            "id": str(uuid.uuid4()),
            "nonce": nonce,
            "now": int(time.time()),
        }
        answer = self._call("present", operation, request.body)
        headers = [(name, value) for name, value in answer["headers"]]
        proof = answer["proof"]
        if proof is not None:
            if signer is None:
                raise InputError("the rule asks for a proof; give the key that the credential is bound to")
            headers.append((proof["name"], jws.sign(proof, signer)))
        return Presentation(
            headers=tuple(headers),
            rule=answer["rule"],
            tool=answer["tool"],
            arguments=answer["arguments"],
            needs_nonce=answer["needs_nonce"],
            needs_certificate=answer["possession"] == "certificate",
        )

    def _call(self, name: str, members: Mapping[str, Any], data: bytes = b"") -> dict[str, Any]:
        number, generation = self._opened
        try:
            return shared.call({name: {"service": number, **members}}, data, generation=generation)
        except InstanceGone:
            number, generation = self._open()
            return shared.call({name: {"service": number, **members}}, data, generation=generation)

    def _open(self) -> tuple[int, int]:
        try:
            answer, generation = shared.open(self._operation, self._content)
        except InputError as error:
            raise RulesError(f"{self._origin}: {error}") from None
        self._issuers = tuple(answer["issuers"])
        self._opened = (int(answer["service"]), generation)
        weakref.finalize(self, shared.close_later, *self._opened)
        return self._opened


def _written(credential: Delegation | AccessToken, signer: Signer | None) -> dict[str, Any]:
    if isinstance(credential, Delegation):
        return {"delegation": credential.text}
    jwk = dict(signer.public_jwk) if signer is not None else None
    return {"access_token": {"token": credential.text, "jwk": jwk}}


def is_local(signer: Signer | None) -> bool:
    """Whether this signer answers without waiting."""
    return signer is None or isinstance(signer, Key)
