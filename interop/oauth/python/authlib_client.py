"""A client with Authlib: gets a token from an issuer, and sends one request with it.

It reads one JSON object from stdin and prints one.
"""

import json
import sys

from authlib.integrations.requests_client import OAuth2Session
from dpop import Dpop


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
