from typing import Any

import credence


class Kms:
    """Stands for the client of your key management service."""

    def __init__(self) -> None:
        self._key = credence.Key.generate("ES256")

    def public_jwk(self) -> dict[str, Any]:
        return self._key.public_jwk

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)


class RemoteKey:
    """A key that never leaves the service."""

    algorithm = "ES256"

    def __init__(self, kms: Kms) -> None:
        self._kms = kms
        self.public_jwk = kms.public_jwk()

    def sign(self, data: bytes) -> bytes:
        return self._kms.sign(data)  # r || s, 64 bytes; convert if your service returns DER


signer: credence.Signer = RemoteKey(Kms())
print(credence.dpop(signer, "GET", "https://payments.example/").count("."))
