"""What is measured: the Credence filter, with a control plane that it follows and that stores its evidence."""

import json
import secrets
import subprocess
from pathlib import Path

from .case import Case
from .envoy import grpc_cluster, wasm_filter
from .measure import LOAD_CORE

ISSUER = "https://id.example.com"
AUDIENCE = "https://payments.example"
TOOL = "catalog.read"
STOP_LIMIT_SECONDS = 15


class Tool:
    """The command line tool `credence`."""

    def __init__(self, binary: str):
        self.binary = binary

    def keygen(self, file: Path) -> dict:
        """Makes a key pair: the private key goes into the file, the public one is returned."""
        return json.loads(self._run("keygen", "--out", file))

    def mint(self, issuer_key: Path, holder_key: Path) -> str:
        """A delegation of TOOL to whoever has the holder's key."""
        return self._run(
            *("mint", "--key", issuer_key, "--holder", holder_key, "--issuer", ISSUER, "--subject", "alice"),
            *("--audience", AUDIENCE, "--tool", TOOL),
        )

    def _run(self, *arguments: object) -> str:
        outcome = subprocess.run([self.binary, *map(str, arguments)], check=False, capture_output=True, text=True)
        if outcome.returncode != 0:
            raise SystemExit(f"error: credence {arguments[0]} failed:\n{outcome.stderr}")
        return outcome.stdout.strip()


class ControlPlane:
    """Running from `with` to its end, on the load's core: its work is not Envoy's."""

    def __init__(self, tool: Tool, scratch: Path):
        self._tool = tool
        self._scratch = scratch

    def __enter__(self) -> "ControlPlane":
        token = self._scratch / "operator-token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        self._log = self._scratch / "control-plane.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["taskset", "-c", LOAD_CORE, self._tool.binary, "serve", "--data", self._scratch / "control-plane"]
                + ["--init", "--fresh", "--operator-token-file", token]
                + ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            announced = self._announced()
        except BaseException:
            self.__exit__()
            raise
        self.log_id = announced["log_id"]
        self.grpc_port = int(announced["grpc"].rsplit(":", 1)[1])
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=STOP_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _announced(self) -> dict[str, str]:
        """What `serve` prints once it serves; it ends without if it can not."""
        announced = {}
        for line in self._process.stdout:
            name, value = line.strip().split(": ", 1)
            announced[name] = value
            if announced.keys() >= {"log_id", "grpc"}:
                return announced
        raise SystemExit(f"error: the control plane did not start:\n{self._log.read_text(errors='replace')}")


def cases(tool: Tool, plane: ControlPlane, module: Path, scratch: Path) -> list[Case]:
    """A delegation that the filter remembers, one that it verifies anew each time, and one that it finds each time among
    those that the workers share: audit on, no proof asked."""
    issuer_key, agent_key = scratch / "issuer.jwk", scratch / "agent.jwk"
    issuer = tool.keygen(issuer_key)
    tool.keygen(agent_key)
    delegation = tool.mint(issuer_key, agent_key)

    def case(name: str, limits: dict[str, int]) -> Case:
        # A name of its own, so that each has a VM and a cluster to itself.
        own_name = f"credence_{name}"
        settings = configuration(issuer, own_name, plane.log_id, limits)
        return Case(
            name,
            filters=[wasm_filter(own_name, module, settings)],
            path="/v1/catalog/shoes",
            headers={"delegation": delegation},
            status_without_headers=401,
            clusters=[grpc_cluster(own_name, plane.grpc_port)],
        )

    return [
        case("hot", limits={}),
        case("cold", limits={"cache_entries": 0, "shared_cache_entries": 0}),
        case("shared", limits={"cache_entries": 0}),
    ]


def configuration(issuer: dict, cluster: str, log_id: str, limits: dict[str, int]) -> dict:
    """As docs/configuration.md describes it; the rule is the one for the catalog in envoy-config/envoy.yaml."""
    return {
        "audience": [AUDIENCE],
        "trust_anchors": [{"issuer": ISSUER, "jwk": issuer, "asserts_subjects": True}],
        "control_plane": {"cluster": cluster, "log_id": log_id},
        "limits": limits,
        "rules": [
            {
                "name": "catalog",
                "match": {"methods": ["GET"], "path": "/v1/catalog/{item}"},
                "tool": TOOL,
                "args": {"item": {"path": "item"}},
                "proof": "none",
            }
        ],
    }
