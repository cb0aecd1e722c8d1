"""Keys, signing and verifying with joserfc."""

import warnings

from joserfc import jwk, jwt
from joserfc.errors import JoseError, SecurityWarning

# EdDSA is deprecated, as the warning says. The tests check that it is refused unless a configuration lists it.
warnings.simplefilter("ignore", SecurityWarning)


def generate_key(algorithm):
    kty, crv = {
        "Ed25519": ("OKP", "Ed25519"),
        "EdDSA": ("OKP", "Ed25519"),
        "ES256": ("EC", "P-256"),
        "ES256K": ("EC", "secp256k1"),
    }[algorithm]
    return jwk.generate_key(kty, crv).as_dict(private=True)


def sign(claims, key, algorithm, typ):
    return jwt.encode({"alg": algorithm, "typ": typ}, claims, jwk.import_key(key), algorithms=[algorithm])


def verify(token, key, algorithm, typ):
    decoded = jwt.decode(token, jwk.import_key(key), algorithms=[algorithm])
    if decoded.header["typ"] != typ:
        raise JoseError(f"typ is {decoded.header['typ']}, not {typ}")
    jwt.JWTClaimsRegistry().validate(decoded.claims)  # exp, among others
    return decoded.claims
