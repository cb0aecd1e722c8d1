"""A peer outside the proxy: ext_authz with loadtest/peers/authorizer."""

import json
import subprocess
from pathlib import Path

from . import jwt
from .case import Case
from .envoy import TYPES, grpc_cluster
from .load import LOAD_CORE

# The case, and the authorizer's service that answers it.
SERVICES = {"ext_authz": "allow", "ext_authz_opa": "opa", "ext_authz_opa_cached": "opa_cached"}
PATH = "/v1/catalog/shoes"


class Authorizer:
    """Runs from `with` to its end, on the load's core: its work is not Envoy's."""

    def __init__(self, program: str, key: jwt.SigningKey, scratch: Path):
        self._program = program
        self._key = key
        self._jwks = scratch / "jwks.json"

    def __enter__(self) -> "Authorizer":
        self._jwks.write_text(self._key.public_jwks())
        options = ["-jwks", self._jwks, "-issuer", jwt.ISSUER, "-audience", jwt.AUDIENCE]
        self._process = subprocess.Popen(
            ["taskset", "-c", LOAD_CORE, self._program, *options], stdout=subprocess.PIPE, text=True
        )
        announced = self._process.stdout.readline()
        if not announced:
            self.__exit__()
            raise SystemExit("error: the authorizer did not start (its message is above)")
        self._ports = json.loads(announced)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cases(self) -> list[Case]:
        headers = {"authorization": f"Bearer {self._key.sign_token()}"}
        return [
            Case(
                name,
                filters=[ext_authz_filter(name)],
                path=PATH,
                headers=headers,
                status_without_headers=200 if service == "allow" else 403,
                clusters=[grpc_cluster(name, self._ports[service])],
            )
            for name, service in SERVICES.items()
        ]


def ext_authz_filter(cluster: str) -> dict:
    return {
        "name": "ext_authz",
        "typed_config": {
            "@type": f"{TYPES}.http.ext_authz.v3.ExtAuthz",
            "transport_api_version": "V3",
            # With Envoy's default of 200 ms, requests would be denied while the authorizer has no core.
            "grpc_service": {"envoy_grpc": {"cluster_name": cluster}, "timeout": "5s"},
        },
    }
