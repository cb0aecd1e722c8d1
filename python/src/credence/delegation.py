"""Delegations: what an agent may do, narrower ones for other agents, and proofs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from . import jws
from .errors import Denied, InputError
from .keys import Signer, thumbprint
from .module import shared


class Delegation:
    """A chain of tokens that gives its holder tools (draft-niyikiza-oauth-attenuating-agent-tokens-02).

    Its form is checked, its signatures are not: only the service knows which issuers it trusts.

    Attributes:
        id: The `jti` of the last token.
        issued_at: The `iat` of the last token, in seconds since the Unix epoch.
        expires_at: When the delegation ends, in seconds since the Unix epoch.
        depth: How many times the delegation was handed on.
        depth_left: How many times it can still be handed on.
        tools: The names of the granted tools.
        holder: The thumbprint of the holder's key (RFC 7638), if the last token names a key.
    """

    def __init__(self, text: str) -> None:
        held = shared.call({"hold": {"chain": text, "now": _now()}})
        self._text = text
        self.id: str = held["id"]
        self.issued_at: int = held["issued_at"]
        self.expires_at: int = held["expires_at"]
        self.depth: int = held["depth"]
        self.depth_left: int = held["depth_left"]
        self.tools: tuple[str, ...] = tuple(held["tools"])
        self.holder: str | None = held["thumbprint"]

    @classmethod
    def parse(cls, text: str) -> Delegation:
        """Reads a chain: its tokens joined by `~`, root first. White space around it is ignored.

        Raises:
            InputError: It is not a chain, its tokens do not fit together, or it has expired.
        """
        return cls(text.strip())

    @property
    def text(self) -> str:
        """The chain. Keep it out of logs: for rules without proofs it is a bearer credential."""
        return self._text

    def unverified_claims(self) -> list[dict[str, Any]]:
        """The tokens, root first: `header`, `claims` and `hash` of each. For display only: nothing is verified."""
        tokens: list[dict[str, Any]] = inspect(self._text)["tokens"]
        return tokens

    def check(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Checks that the delegation grants this call.

        Args:
            tool: The tool's name.
            arguments: Every argument of the call. Values are JSON values.

        Raises:
            Denied: It does not grant the call, or has expired.
            InputError: An argument is not JSON.
        """
        shared.call({"permit": {"chain": self._text, "tool": tool, "arguments": dict(arguments), "now": _now()}})

    def permits(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the delegation grants this call. See `check`."""
        try:
            self.check(tool, arguments)
        except Denied:
            return False
        return True

    def derive(  # noqa: PLR0913 - what a grant says
        self,
        signer: Signer,
        *,
        holder: Mapping[str, Any],
        tools: Mapping[str, Mapping[str, Any]],
        audience: str | Sequence[str] = (),
        lifetime: int = 3600,
        max_depth: int | None = None,
    ) -> Delegation:
        """Makes a narrower delegation for another agent. No service is asked.

        Args:
            signer: The key of this delegation's holder.
            holder: The public JWK of the other agent.
            tools: The granted tools, each with constraints by argument, such as
                `{"payments.charge": {"amount": {"constraint_type": "range", "max": 20}}}`. No constraints allow any.
            audience: The services that may accept it. Without any: those of this delegation.
            lifetime: In seconds. The new delegation never outlives this one.
            max_depth: The greatest depth of delegations below the new one; see `depth`. Without it, the new one cannot
                be handed on.

        Raises:
            InputError: The new delegation would not be narrower, or the key is not the holder's.
        """
        self._require_holder(signer)
        if lifetime <= 0:
            raise InputError(f"lifetime is {lifetime} seconds; it must be positive")
        now = _now()
        grant = {
            "id": str(uuid.uuid4()),
            "holder": dict(holder),
            "audience": [audience] if isinstance(audience, str) else list(audience),
            "tools": {name: dict(constraints) for name, constraints in tools.items()},
            "expires_at": min(now + lifetime, self.expires_at),
            "max_depth": self.depth + 1 if max_depth is None else max_depth,
        }
        to_sign = shared.call({"derive": {"chain": self._text, "grant": grant, "now": now}})
        return Delegation(f"{self._text}~{jws.sign(to_sign, signer)}")

    def prove(
        self,
        signer: Signer,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        audience: str | None = None,
        nonce: str | None = None,
    ) -> str:
        """A proof for one call (the draft's section 7): a compact JWS. The HTTP hooks do this on their own.

        Args:
            signer: The key of this delegation's holder.
            tool: The tool that the rule names.
            arguments: Every argument of the call, typed as the rule says.
            audience: A name of the service. Services refuse proofs without it by default.
            nonce: The latest nonce of the service, if it asks for one.

        Raises:
            InputError: The key is not the holder's, or an argument cannot be in a proof.
        """
        self._require_holder(signer)
        invocation = {
            "id": str(uuid.uuid4()),
            "tool": tool,
            "arguments": dict(arguments),
            "audience": audience,
            "nonce": nonce,
        }
        to_sign = shared.call({"prove": {"chain": self._text, "invocation": invocation, "now": _now()}})
        return jws.sign(to_sign, signer)

    def _require_holder(self, signer: Signer) -> None:
        own = thumbprint(signer.public_jwk)
        if self.holder != own:
            raise InputError(f"the delegation is for the key {self.holder}, not {own}; use the key that it names")

    def __repr__(self) -> str:
        return f"<Delegation {self.id} tools={list(self.tools)} expires_at={self.expires_at}>"


def inspect(text: str) -> dict[str, Any]:
    """What a chain says, for display only: `{"verified": False, "tokens": [{"header", "claims", "hash"}]}`.

    Unlike `Delegation.parse`, this reads an expired chain too.

    Raises:
        InputError: It is not a chain of tokens.
    """
    return shared.call({"inspect": {"chain": text.strip()}})


def dpop(signer: Signer, method: str, url: str, *, access_token: str | None = None, nonce: str | None = None) -> str:
    """A DPoP proof (RFC 9449, section 4.2) for one request: a compact JWS.

    Args:
        signer: The key that the access token is bound to.
        method: The HTTP method.
        url: The URL. Query and fragment are left out.
        access_token: The access token that the request carries. None for a request to a token endpoint.
        nonce: The latest `dpop-nonce` of the server, if it gave one.

    Raises:
        InputError: The URL or the key cannot be used.
    """
    operation = {
        "jwk": dict(signer.public_jwk),
        "id": str(uuid.uuid4()),
        "method": method,
        "url": url,
        "access_token": access_token,
        "nonce": nonce,
        "now": _now(),
    }
    return jws.sign(shared.call({"dpop": operation}), signer)


def _now() -> int:
    return int(time.time())
