"""An issuer with Authlib and Flask: bearers of RFC 9068, and metadata of RFC 8414 only.

Usage: authlib_issuer.py PORT RESOURCE SECRET
"""

import os
import secrets
import sys

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin
from authlib.oauth2.rfc6749.grants import ClientCredentialsGrant
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from flask import Flask, jsonify
from joserfc.jwk import ECKey

PORT, RESOURCE, SECRET = int(sys.argv[1]), sys.argv[2], sys.argv[3]
ISSUER = f"http://127.0.0.1:{PORT}"
KEY = ECKey.generate_key("P-256", {"use": "sig", "alg": "ES256"})


class Service(ClientMixin):
    """The only client."""

    def get_client_id(self):
        return "service"

    def get_allowed_scope(self, scope):
        return scope

    def check_client_secret(self, client_secret):
        return secrets.compare_digest(client_secret, SECRET)

    def check_endpoint_auth_method(self, method, endpoint):
        return method == "client_secret_basic"

    def check_grant_type(self, grant_type):
        return grant_type == "client_credentials"


class Tokens(JWTBearerTokenGenerator):
    def get_jwks(self):
        return KEY

    def get_audiences(self, client, user, scope):
        return [client.get_client_id(), RESOURCE]


os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
app = Flask(__name__)
server = AuthorizationServer(app, lambda _: Service(), lambda token, request: None)
server.register_token_generator("default", Tokens(issuer=ISSUER, alg="ES256"))
server.register_grant(ClientCredentialsGrant)


@app.get("/.well-known/oauth-authorization-server")
def metadata():
    endpoints = {"token_endpoint": f"{ISSUER}/token", "jwks_uri": f"{ISSUER}/jwks"}
    return jsonify(issuer=ISSUER, response_types_supported=[], **endpoints)


@app.get("/jwks")
def jwks():
    return jsonify(keys=[KEY.as_dict(private=False)])


@app.post("/token")
def token():
    return server.create_token_response()


app.run(port=PORT)
