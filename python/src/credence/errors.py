"""The errors of this package. All of them are a `CredenceError`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class CredenceError(Exception):
    """The base of all errors of this package."""


class InputError(CredenceError, ValueError):
    """A value from the caller cannot be used: a chain, a key, a file or an argument. The message says which and why."""


class RulesError(CredenceError):
    """The rules of a service cannot be fetched or used. The message names the address."""


class ModuleError(CredenceError):
    """The WebAssembly module is missing or stopped. After a stop, the next call starts a new instance."""


class Denied(CredenceError):
    """The service would deny this call. Nothing was sent.

    The members are those of the answer that the service's filter would give (RFC 9457).

    Attributes:
        reason: The stable code, such as `argument_not_allowed`.
        argument: The argument or tool that the reason is about, if there is one.
        step: The step of the draft's section 8 that failed, such as `4p1`, if there is one.
        title: The reason for people, one sentence.
        status: The HTTP status of the answer, such as 403.
        headers: The headers of the answer.
        body: The body of the answer: a problem document, or a JSON-RPC error for an MCP request.
        answer: All of these, in the module's form.
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self.reason: str = answer["reason"]
        self.argument: str | None = answer["argument"]
        self.step: str | None = answer["step"]
        self.title: str = answer["title"]
        self.status: int = answer["status"]
        self.headers: list[tuple[str, str]] = [(name, value) for name, value in answer["headers"]]
        self.body: str = answer["body"]
        about = f" ({self.argument})" if self.argument else ""
        super().__init__(f"denied before sending: {self.reason}{about}: {self.title}")
        self.answer = dict(answer)

    def __reduce__(self) -> tuple[type[Denied], tuple[dict[str, Any]]]:
        return (type(self), (self.answer,))

    @property
    def problem(self) -> dict[str, Any]:
        """The problem document (RFC 9457). Empty if the answer has no JSON body, as for gRPC."""
        try:
            document = json.loads(self.body)
        except ValueError:
            return {}
        if not isinstance(document, dict):
            return {}
        error = document.get("error")  # JSON-RPC puts the problem document into `error.data`.
        data = error.get("data") if isinstance(error, dict) else document
        return data if isinstance(data, dict) else {}
