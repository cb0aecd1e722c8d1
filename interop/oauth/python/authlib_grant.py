"""A client with Authlib that asks a person for a token, uses it, and refreshes it.

It reads a JSON object from stdin, prints the URL for the person's browser, reads the URL that the browser ends at, and
prints a JSON object.
"""

import json
import os
import sys
from urllib.parse import parse_qsl, urlencode, urlsplit

from authlib.common.security import generate_token
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from dpop import Dpop
from joserfc.jwk import ECKey

# Only because everything is on the loopback address.
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"


def main():
    task = json.loads(sys.stdin.readline())
    session = session_of(task)
    discovery = task["issuer"] + "/.well-known/oauth-authorization-server"
    metadata = session.get(discovery, withhold_token=True).json()
    token_endpoint = metadata["token_endpoint"]
    dpop = Dpop(task["dpop"]) if task.get("dpop") else None
    proof = lambda endpoint: {"DPoP": dpop.proof("POST", endpoint)} if dpop else {}

    verifier = generate_token(48)
    endpoint = metadata["authorization_endpoint"]
    page, state = session.create_authorization_url(endpoint, code_verifier=verifier)
    if task.get("push"):
        page = pushed(session, metadata, page, proof)
    print(page, flush=True)

    callback = sys.stdin.readline().strip()
    options = {"authorization_response": callback, "state": state, "code_verifier": verifier}
    session.fetch_token(token_endpoint, headers=proof(token_endpoint), **options)
    use = lambda: [status(session, dpop, url, task.get("service_ca")) for url in task["urls"]]
    first = use()
    session.refresh_token(token_endpoint, headers=proof(token_endpoint))
    print(json.dumps({"first": first, "refreshed": use()}))


def session_of(task):
    """Authlib's own session, with the credential that the client has."""
    options = {"scope": task["scope"], "redirect_uri": task["redirect"], "code_challenge_method": "S256"}
    if task.get("key"):
        key, method = ECKey.import_key(task["key"]), "private_key_jwt"
        session = OAuth2Session(task["id"], key, method, default_timeout=10, **options)
        session.register_client_auth_method(PrivateKeyJWT(alg="ES256"))
    else:
        session = OAuth2Session(task["id"], default_timeout=10, **options)
    # No proxy is between these programs, and no other CA is trusted.
    session.trust_env = False
    if task.get("cert"):
        session.cert, session.verify = tuple(task["cert"]), task["ca"]
    return session


def pushed(session, metadata, page, proof):
    """The same request by reference (RFC 9126), for which Authlib has only its HTTP client and its authentication."""
    endpoint = metadata["pushed_authorization_request_endpoint"]
    auth = session.client_auth(session.token_endpoint_auth_method)
    request = {name: value for name, value in parse_qsl(urlsplit(page).query) if name != "client_id"}
    if session.token_endpoint_auth_method == "private_key_jwt":
        request["client_id"] = session.client_id
    response = session.post(endpoint, data=request, auth=auth, headers=proof(endpoint))
    response.raise_for_status()
    query = {"client_id": session.client_id, "request_uri": response.json()["request_uri"]}
    return metadata["authorization_endpoint"] + "?" + urlencode(query)


def status(session, dpop, url, ca):
    """The status of a request to the service, which may have another CA."""
    if not dpop:
        return session.get(url, verify=ca).status_code
    dpop.token = session.token["access_token"]
    return session.get(url, auth=dpop, withhold_token=True).status_code


main()
