"""Origins: scheme, host and port of a service (RFC 6454)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from .errors import InputError

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Origin:
    """Scheme, host and port. Equal if requests to them go to the same place."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Reads `https://payments.example`, with or without a port and a last slash.

        Raises:
            InputError: It is not an origin.
        """
        error = InputError(f"{text!r} is not an origin; write scheme and host, such as 'https://payments.example'")
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise error from None
        rest = (parts.path not in ("", "/"), parts.query, parts.fragment, parts.username, parts.password)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or any(rest):
            raise error
        return cls.of(parts.scheme, parts.hostname, port)

    @classmethod
    def of(cls, scheme: str, host: str, port: int | None) -> Origin:
        """The origin with these parts. Without a port, the scheme's own."""
        scheme = scheme.lower()
        return cls(scheme, host.lower().strip("[]"), port if port is not None else _DEFAULT_PORTS.get(scheme, 0))

    @property
    def authority(self) -> str:
        """Host and port, as in the `Host` header. A default port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the host is this machine, so that plain `http` does not reach a network."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"
