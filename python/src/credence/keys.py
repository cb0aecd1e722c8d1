"""Keys of agents: make, load and save them. Private key material never appears in a text form of these objects."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, cast, runtime_checkable

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey
from joserfc.jws import JWSRegistry

from .errors import InputError
from .module import shared

Algorithm = Literal["Ed25519", "ES256"]
"""The algorithms of an agent's keys: `Ed25519` (RFC 9864) and `ES256` (RFC 7518)."""

_log = logging.getLogger("credence")

MAX_FILE = 1 << 16
"""The size of a key file, in bytes."""


@runtime_checkable
class Signer(Protocol):
    """A key that signs, such as a `Key`, or one that stays in a KMS or HSM.

    Hooks call `sign` of a signer that is not a `Key` in a worker thread, so it may wait for a network.
    """

    @property
    def algorithm(self) -> str:
        """The JWS algorithm: `Ed25519` or `ES256`."""
        ...

    @property
    def public_jwk(self) -> Mapping[str, Any]:
        """The public key as a JWK (RFC 7517)."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Signs these bytes. An ES256 signature is `r || s`, 64 bytes (RFC 7518, section 3.4), not DER."""
        ...


class Key:
    """A private key in the memory of this process."""

    __slots__ = ("_algorithm", "_key")

    def __init__(self, key: OKPKey | ECKey) -> None:
        self._algorithm = _algorithm(key)
        self._key = key

    @classmethod
    def generate(cls, algorithm: Algorithm = "Ed25519") -> Key:
        """Makes a new key."""
        if algorithm == "Ed25519":
            return cls(OKPKey.generate_key("Ed25519"))
        if algorithm == "ES256":
            return cls(ECKey.generate_key("P-256"))
        raise InputError(f"unknown algorithm {algorithm!r}; use 'Ed25519' or 'ES256'")

    @classmethod
    def from_jwk(cls, jwk: Mapping[str, Any] | str) -> Key:
        """Reads a private JWK (RFC 7517), as an object or its text.

        Raises:
            InputError: It is not a private key of a known algorithm.
        """
        return _read_jwk(jwk, "the JWK")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Key:
        """Reads a file with a private JWK, such as `credence keygen` or `save` writes.

        Raises:
            InputError: The file is larger than 64 KiB, or has no private JWK.
            OSError: The file cannot be read.
        """
        text = _read_private(path).decode("utf-8", "replace")
        if text.lstrip().startswith("-----BEGIN"):
            raise InputError(f"{os.fspath(path)}: this is PEM, not a JWK; use load_pem()")
        return _read_jwk(text, os.fspath(path))

    @classmethod
    def load_pem(cls, path: str | os.PathLike[str], passphrase: str | None) -> Key:
        """Reads a file with an encrypted PKCS#8 key in PEM, as `save_pem` writes it.

        Raises:
            InputError: The passphrase is missing or wrong, or the file has no encrypted key of a known algorithm.
            OSError: The file cannot be read.
        """
        name = os.fspath(path)
        secret = _passphrase(passphrase)
        try:
            private = serialization.load_pem_private_key(_read_private(path), secret)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            # Without the cause: it could quote the file.
            raise InputError(f"{name}: not an encrypted PKCS#8 key, or the passphrase is wrong") from None
        if isinstance(private, Ed25519PrivateKey):
            return cls(cast("OKPKey", OKPKey.import_key(private)))
        if isinstance(private, EllipticCurvePrivateKey) and isinstance(private.curve, SECP256R1):
            return cls(cast("ECKey", ECKey.import_key(private)))
        raise InputError(f"{name}: not a key for Ed25519 or ES256 (P-256)")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the private JWK to a new file that only its owner can read.

        Raises:
            InputError: The file exists.
            OSError: The file cannot be written.
        """
        _write_private(path, (json.dumps(self.to_private_jwk()) + "\n").encode())

    def save_pem(self, path: str | os.PathLike[str], passphrase: str | None) -> None:
        """Writes the key to a new file as PKCS#8 in PEM, encrypted with the passphrase.

        Raises:
            InputError: The file exists, or there is no passphrase.
            OSError: The file cannot be written.
        """
        encryption = serialization.BestAvailableEncryption(_passphrase(passphrase))
        private = cast("Ed25519PrivateKey | EllipticCurvePrivateKey", self._key.private_key)
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        _write_private(path, private.private_bytes(pem, pkcs8, encryption))

    def to_private_jwk(self) -> dict[str, Any]:
        """The private JWK. Anyone who has it can sign as this key."""
        return dict(self._key.as_dict(private=True))

    @property
    def algorithm(self) -> str:
        """The JWS algorithm: `Ed25519` or `ES256`."""
        return self._algorithm

    @property
    def public_jwk(self) -> dict[str, Any]:
        """The public key as a JWK (RFC 7517), to be named in a delegation."""
        jwk = self._key.as_dict(private=False)
        return {name: jwk[name] for name in ("kty", "crv", "x", "y") if name in jwk}

    @property
    def thumbprint(self) -> str:
        """The SHA-256 thumbprint of the public key in base64url (RFC 7638)."""
        return thumbprint(self.public_jwk)

    def sign(self, data: bytes) -> bytes:
        """Signs these bytes: 64 bytes, as in a JWS (RFC 7515)."""
        # The signature alone: joserfc's serialize_compact writes the header in its own way, but the header must be
        # signed as the module returns it.
        return JWSRegistry.algorithms[self._algorithm].sign(data, self._key)

    def __repr__(self) -> str:
        return f"<Key {self._algorithm} {self.thumbprint}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a private key is not pickled; save it to a file and load it there")


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """The SHA-256 thumbprint of a public key in base64url (RFC 7638).

    Raises:
        InputError: The JWK has private members, or is not a public key that a delegation can name.
    """
    if "d" in jwk:
        raise InputError("the JWK is a private key; give its public half, such as `key.public_jwk`")
    return cast("str", shared.call({"thumbprint": {"jwk": dict(jwk)}})["thumbprint"])


def _algorithm(key: OKPKey | ECKey) -> Algorithm:
    if not key.is_private:
        raise InputError("this is a public key; signing needs the private key")
    if key.key_type == "OKP" and key.curve_name == "Ed25519":
        return "Ed25519"
    if key.key_type == "EC" and key.curve_name == "P-256":
        return "ES256"
    raise InputError(f"the curve {key.curve_name} is not supported; use an Ed25519 or P-256 key")


def _read_jwk(jwk: Mapping[str, Any] | str, place: str) -> Key:
    # No error below has a cause: the cause could quote private members.
    expected = f"{place}: not a private JWK of an Ed25519 or P-256 key"
    try:
        members = json.loads(jwk) if isinstance(jwk, str) else dict(jwk)
        kinds: dict[str, type[OKPKey] | type[ECKey]] = {"OKP": OKPKey, "EC": ECKey}
        key = cast("OKPKey | ECKey", kinds[members["kty"]].import_key(members))
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError(expected) from None
    try:
        return Key(key)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _passphrase(given: str | None) -> bytes:
    # None is what `os.environ.get` gives for a name that is not set.
    if not given:
        raise InputError("no passphrase given; is its variable set? Without encryption, use save() and load()")
    return given.encode()


def _read_private(path: str | os.PathLike[str]) -> bytes:
    with Path(path).open("rb") as file:
        # A warning, because mounted secrets often have such a mode and no other user.
        if os.name == "posix" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            _log.warning("%s: other users may read this key; run `chmod 600` on it", os.fspath(path))
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise InputError(f"{os.fspath(path)}: larger than {MAX_FILE} bytes, so not a key file")
    return content


def _write_private(path: str | os.PathLike[str], content: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(f"{os.fspath(path)}: the file exists and is not overwritten; choose another name") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
