"""DPoP for Authlib, which has none: the proofs are signed with joserfc, the JOSE library that it is built on."""

import base64
import hashlib
import time
import uuid

import requests
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey


class Dpop(requests.auth.AuthBase):
    """Presents a token with a proof of the key (RFC 9449), and tries again if the service asks for a nonce."""

    def __init__(self, algorithm):
        self.algorithm = algorithm
        self.key = ECKey.generate_key("P-256") if algorithm == "ES256" else OKPKey.generate_key("Ed25519")
        self.token = None

    def proof(self, method, url, token=None, nonce=None):
        claims = {"jti": str(uuid.uuid4()), "htm": method, "htu": url, "iat": int(time.time())}
        if token:
            digest = hashlib.sha256(token.encode()).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if nonce:
            claims["nonce"] = nonce
        header = {"typ": "dpop+jwt", "alg": self.algorithm, "jwk": self.key.as_dict(private=False)}
        return jwt.encode(header, claims, self.key, algorithms=[self.algorithm])

    def __call__(self, request, nonce=None):
        request.headers["Authorization"] = f"DPoP {self.token}"
        request.headers["DPoP"] = self.proof(request.method, request.url, self.token, nonce)
        if nonce is None:
            request.register_hook("response", self.retry)
        return request

    def retry(self, response, **options):
        nonce = response.headers.get("DPoP-Nonce")
        if response.status_code != 401 or nonce is None:
            return response
        response.content  # Frees the connection.
        return response.connection.send(self(response.request.copy(), nonce), **options)
