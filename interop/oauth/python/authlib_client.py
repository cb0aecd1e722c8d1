"""A client with Authlib: gets a token from an issuer, and sends one request with it.

It reads one JSON object from stdin and prints one. Authlib has no DPoP of its own, so the proofs are signed with
joserfc, the JOSE library that it is built on.
"""

import base64
import hashlib
import json
import sys
import time
import uuid

import requests
from authlib.integrations.requests_client import OAuth2Session
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


def main():
    task = json.load(sys.stdin)
    session = OAuth2Session(task["id"], task["secret"], scope=task["scope"])
    # No proxy is between these programs, and no other CA is trusted.
    session.trust_env = False
    discovery = task["issuer"] + "/.well-known/openid-configuration"
    metadata = session.get(discovery, withhold_token=True, timeout=10).json()
    dpop = Dpop(task["dpop"]) if task.get("dpop") else None
    endpoint = metadata["token_endpoint"]
    if task.get("cert"):
        session.cert, session.verify = tuple(task["cert"]), task["ca"]
        endpoint = metadata["mtls_endpoint_aliases"]["token_endpoint"]
    headers = {"DPoP": dpop.proof("POST", endpoint)} if dpop else {}
    token = session.fetch_token(
        endpoint, grant_type="client_credentials", resource=task["resource"], headers=headers, timeout=10
    )
    if dpop:
        dpop.token = token["access_token"]
        response = session.get(task["url"], auth=dpop, withhold_token=True, timeout=10)
    else:
        response = session.get(task["url"], timeout=10)
    print(json.dumps({"status": response.status_code, "body": response.json(), "token": token["access_token"]}))


main()
