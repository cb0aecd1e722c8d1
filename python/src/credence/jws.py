"""Signing what the module asks for, as a compact JWS (RFC 7515, section 7.1)."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from .errors import InputError
from .keys import Signer

SIGNATURE_BYTES = 64
"""The size of a signature by Ed25519 or ES256."""


def sign(to_sign: Mapping[str, Any], signer: Signer) -> str:
    """Signs a header and a payload exactly as the module returned them.

    Args:
        to_sign: `header`, a JSON object, and `payload`, a text.
        signer: The key.

    Raises:
        InputError: The signer's algorithm is not the header's, or its signature has the wrong size.
    """
    header = to_sign["header"]
    if header["alg"] != signer.algorithm:
        raise InputError(f"the signer's algorithm is {signer.algorithm}, but its public key is for {header['alg']}")
    # Canonical, as the module writes it: it keeps the members' order and escapes only what JSON requires.
    header_text = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
    signed = f"{_base64url(header_text.encode())}.{_base64url(to_sign['payload'].encode())}"
    signature = signer.sign(signed.encode())
    if len(signature) != SIGNATURE_BYTES:
        raise InputError(
            f"the signer returned {len(signature)} bytes, not {SIGNATURE_BYTES}; ES256 needs r || s, not DER"
        )
    return f"{signed}.{_base64url(signature)}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
