"""Keys, signing and verifying with PyJWT."""

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

# PyJWT has Ed25519 only under its older name, EdDSA. A version with both names refuses this line: remove it then.
jwt.register_algorithm("Ed25519", OKPAlgorithm())


def generate_key(algorithm):
    if algorithm in ("Ed25519", "EdDSA"):
        return OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate(), as_dict=True)
    curve = {"ES256": ec.SECP256R1, "ES256K": ec.SECP256K1}[algorithm]
    return ECAlgorithm.to_jwk(ec.generate_private_key(curve()), as_dict=True)


def sign(claims, key, algorithm, typ):
    return jwt.encode(claims, jwt.PyJWK(key).key, algorithm=algorithm, headers={"typ": typ})


def verify(token, key, algorithm, typ):
    options = {"verify_aud": False}  # an `aud` is there: a service passes audience="https://…" instead
    decoded = jwt.decode_complete(token, jwt.PyJWK(key).key, algorithms=[algorithm], options=options)
    if decoded["header"]["typ"] != typ:
        raise jwt.InvalidTokenError(f"typ is {decoded['header']['typ']}, not {typ}")
    return decoded["payload"]
