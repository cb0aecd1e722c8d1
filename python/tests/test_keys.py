"""Keys: making, loading, saving and hiding them."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc import jwk, jws

import credence
from credence.jws import sign

ALGORITHMS: list[credence.keys.Algorithm] = ["Ed25519", "ES256"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_survives_its_jwk_its_file_and_its_encrypted_pem(
    algorithm: credence.keys.Algorithm, tmp_path: Path
) -> None:
    key = credence.Key.generate(algorithm)
    key.save(tmp_path / "key.jwk")
    key.save_pem(tmp_path / "key.pem", "correct horse")
    copies = [
        credence.Key.from_jwk(key.to_private_jwk()),
        credence.Key.from_jwk(json.dumps(key.to_private_jwk())),
        credence.Key.load(tmp_path / "key.jwk"),
        credence.Key.load_pem(tmp_path / "key.pem", "correct horse"),
    ]
    for one in copies:
        assert (one.algorithm, one.public_jwk, one.thumbprint) == (algorithm, key.public_jwk, key.thumbprint)
        assert one.to_private_jwk()["d"] == key.to_private_jwk()["d"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_signature_is_valid_for_another_library(algorithm: credence.keys.Algorithm) -> None:
    key = credence.Key.generate(algorithm)
    token = sign({"header": {"alg": algorithm, "typ": "t"}, "payload": '{"a":"ü"}'}, key)
    verified = jws.deserialize_compact(token, jwk.import_key(key.public_jwk), algorithms=[algorithm])
    assert (verified.headers(), verified.payload) == ({"alg": algorithm, "typ": "t"}, '{"a":"ü"}'.encode())


def test_a_thumbprint_is_that_of_rfc_8037() -> None:
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    assert credence.thumbprint(jwk) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_key_files_are_private_and_never_overwritten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = credence.Key.generate()
    for path, save in [
        (tmp_path / "key.jwk", key.save),
        (tmp_path / "key.pem", lambda path: key.save_pem(path, "secret")),
    ]:
        save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(credence.InputError, match="exists and is not overwritten"):
            save(path)
    (tmp_path / "key.jwk").chmod(0o644)
    assert credence.Key.load(tmp_path / "key.jwk").thumbprint == key.thumbprint
    assert "chmod 600" in caplog.text


def test_a_pem_file_is_encrypted(tmp_path: Path) -> None:
    key = credence.Key.generate()
    for missing in ("", None):
        with pytest.raises(credence.InputError, match="no passphrase given"):
            key.save_pem(tmp_path / "key.pem", missing)
    key.save_pem(tmp_path / "key.pem", "right")
    assert "BEGIN ENCRYPTED PRIVATE KEY" in (tmp_path / "key.pem").read_text()
    with pytest.raises(credence.InputError, match="passphrase is wrong"):
        credence.Key.load_pem(tmp_path / "key.pem", "wrong")
    with pytest.raises(credence.InputError, match="no passphrase given"):
        credence.Key.load_pem(tmp_path / "key.pem", None)
    with pytest.raises(credence.InputError, match=r"use load_pem\(\)"):
        credence.Key.load(tmp_path / "key.pem")
    plain = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "plain.pem").write_bytes(plain)
    (tmp_path / "plain.pem").chmod(0o600)
    with pytest.raises(credence.InputError, match="not an encrypted PKCS#8 key"):
        credence.Key.load_pem(tmp_path / "plain.pem", "right")


@pytest.mark.parametrize(
    ("jwk", "message"),
    [
        ("no json", "not a private JWK"),
        ("[]", "not a private JWK"),
        ({}, "not a private JWK"),
        ({"kty": "oct", "k": "c2VjcmV0"}, "not a private JWK"),
        ({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}, "public key"),
        ({"kty": "OKP", "crv": "Ed25519", "x": 1, "d": "SECRETSECRET"}, "not a private JWK"),
        ({"kty": "OKP", "crv": "Ed25519", "x": "11qY", "d": "SECRETSECRET"}, "not a private JWK"),
    ],
)
def test_a_wrong_jwk_is_named_but_not_quoted(jwk: object, message: str) -> None:
    with pytest.raises(credence.InputError, match=message) as raised:
        credence.Key.from_jwk(jwk)  # type: ignore[arg-type]
    assert "SECRET" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_private_key_is_not_shown_and_not_pickled(caplog: pytest.LogCaptureFixture) -> None:
    key = credence.Key.generate()
    secret = key.to_private_jwk()["d"]
    logging.getLogger("credence").warning("%s %r", key, key)
    shown = f"{key} {key!r} {[key]!s} {key!s:>10} {caplog.text}"
    assert secret not in shown
    assert "d" not in key.public_jwk
    for leak in (pickle.dumps, copy.deepcopy, json.dumps):
        with pytest.raises(TypeError):
            leak(key)
    with pytest.raises(credence.InputError, match="private key"):
        credence.thumbprint(key.to_private_jwk())


class RemoteKey:
    """A key whose private half is elsewhere, as in a KMS."""

    def __init__(self, key: credence.Key, cut: int = 0) -> None:
        self.algorithm = key.algorithm
        self.public_jwk = key.public_jwk
        self._key = key
        self._cut = cut

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)[self._cut :]


def test_any_signer_can_be_the_key(delegation: credence.Delegation, key: credence.Key) -> None:
    remote = RemoteKey(key)
    assert isinstance(remote, credence.Signer)
    assert delegation.prove(remote, "payments.charge", {}).count(".") == 2
    with pytest.raises(credence.InputError, match=r"r \|\| s"):
        delegation.prove(RemoteKey(key, cut=1), "payments.charge", {})
    lying = RemoteKey(key)
    lying.algorithm = "ES256"
    with pytest.raises(credence.InputError, match="its public key is for Ed25519"):
        delegation.prove(lying, "payments.charge", {})
