"""The Credence filter under test, with a control plane that it follows and that stores its evidence."""

import json
import secrets
import subprocess
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .case import Case
from .envoy import grpc_cluster, wasm_filter
from .load import LOAD_CORE

ISSUER = "https://id.example.com"
AUDIENCE = "https://payments.example"
TOOL = "catalog.read"
ITEM = "shoes"
RULES = 50
AGENTS = 8
STOP_LIMIT_SECONDS = 15


class Tool:
    """The command line tool `credence`."""

    def __init__(self, binary: str):
        self.binary = binary

    def keygen(self, file: Path, alg: str = "Ed25519") -> dict:
        """Makes a key pair: writes the private key into the file and returns the public one."""
        return json.loads(self._run("keygen", "--out", file, "--alg", alg))

    def mint(
        self,
        issuer_key: Path,
        holder_key: Path,
        granted: str = TOOL,
        depth: int = 1,
        subject: str = "alice",
        epoch: int | None = None,
    ) -> str:
        """A delegation of one tool for the holder of this key, who may derive from it."""
        return self._run(
            *("mint", "--key", issuer_key, "--holder", holder_key, "--issuer", ISSUER, "--subject", subject),
            *("--audience", AUDIENCE, "--tool", granted, "--max-depth", depth),
            *(() if epoch is None else ("--epoch", epoch)),
        )

    def derive(self, parent: str, key: Path, holder_key: Path, count: int, depth: int | None = None) -> list[str]:
        """This many delegations for the holder, under the same parent; derivable down to that depth, if given."""
        options = ("--parent", parent, "--key", key, "--holder", holder_key, "--same-tools", "--count", count)
        return self._run("derive", *options, *(() if depth is None else ("--max-depth", depth))).splitlines()

    def prove(self, chain: str, key: Path, count: int) -> list[str]:
        """Proofs for these requests."""
        options = ("--chain", chain, "--key", key, "--tool", TOOL, "--arg", f"item={ITEM}", "--audience", AUDIENCE)
        return self._run("prove", *options, "--count", count).splitlines()

    def _run(self, *arguments: object) -> str:
        outcome = subprocess.run([self.binary, *map(str, arguments)], check=False, capture_output=True, text=True)
        if outcome.returncode != 0:
            raise SystemExit(f"error: credence {arguments[0]} failed:\n{outcome.stderr}")
        return outcome.stdout.strip()


class ControlPlane:
    """Runs from `with` to its end, on the load's core unless another one is given: its work is not Envoy's."""

    def __init__(self, tool: Tool, scratch: Path, cores: str = LOAD_CORE):
        self._tool = tool
        self._scratch = scratch
        self._cores = cores

    def __enter__(self) -> "ControlPlane":
        self.token_file = self._scratch / "operator-token"
        self.token_file.touch(mode=0o600)
        self._token = secrets.token_hex(32)
        self.token_file.write_text(self._token)
        self._log = self._scratch / "control-plane.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["taskset", "-c", self._cores, self._tool.binary, "serve", "--data", self._scratch / "control-plane"]
                + ["--init", "--fresh", "--operator-token-file", self.token_file]
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
        self.http = announced["http"].rsplit("/", 1)[-1]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=STOP_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def get(self, target: str) -> dict:
        """The HTTP API's answer to the operator."""
        request = urllib.request.Request(f"http://{self.http}{target}", headers={"authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def _announced(self) -> dict[str, str]:
        """The lines that `serve` prints once it is ready; ends with an error if it does not start."""
        announced = {}
        for line in self._process.stdout:
            name, value = line.strip().split(": ", 1)
            announced[name] = value
            if announced.keys() >= {"log_id", "grpc", "http"}:
                return announced
        raise SystemExit(f"error: the control plane did not start:\n{self._log.read_text(errors='replace')}")


# The cases of `make bench BENCH=filter`.
CASES = ("hot", "repeat", "hot_separate", "cold", "proof", "uncached", "shared")
# In the mixed case, which is otherwise like hot.
NEW_OF_TEN = 1
# Far more than the decision cache holds (limits.repeat_entries), so that none is found there again.
DISTINCT = 65_536


def cases(
    tool: Tool, plane: ControlPlane, module: Path, scratch: Path, names: tuple[str, ...] = CASES
) -> list[Case]:
    """The filter's work for a request, in several cases. All have audit on and follow revocations."""
    issuer_key = scratch / "issuer.jwk"
    issuer = tool.keygen(issuer_key)
    agents = [scratch / f"agent-{number}.jwk" for number in range(AGENTS)]
    for agent in agents:
        tool.keygen(agent)
    delegations = [tool.mint(issuer_key, agent) for agent in agents]

    def case(
        name: str,
        proof: str = "none",
        identity: str = "dictionary",
        limits: dict | None = None,
        mode: str = "enforce",
        **more,
    ) -> Case:
        # Its own name, so that each has its own VM and cluster.
        own_name = f"credence_{name}"
        settings = configuration(issuer, own_name, plane.log_id, limits or {}, proof, identity) | {"mode": mode}
        return Case(
            name,
            filters=[wasm_filter(own_name, module, settings)],
            path=f"/v1/catalog/{ITEM}",
            status_without_headers=200 if mode == "shadow" else 401,
            clusters=[grpc_cluster(own_name, plane.grpc_port)],
            **more,
        )

    def new_leaves(count: int) -> list[tuple[str, ...]]:
        return [(leaf,) for leaf in tool.derive(delegations[0], agents[0], agents[1], count)]

    def mixture(count: int) -> list[tuple[str, ...]]:
        leaves = iter(new_leaves(-(-count * NEW_OF_TEN // 10)))
        mixed = [next(leaves) if number % 10 < NEW_OF_TEN else (delegations[0],) for number in range(count)]
        return [(*delegation, *path) for delegation, path in zip(mixed, catalog_paths(count), strict=True)]

    def proofs(count: int) -> list[tuple[str, ...]]:
        # By several agents in turn: the memory of used proofs holds about a thousand a second for each.
        by_agent = [
            [(delegation, proof) for proof in tool.prove(delegation, agent, -(-count // AGENTS))]
            for delegation, agent in zip(delegations, agents, strict=True)
        ]
        return [request for turn in zip(*by_agent, strict=True) for request in turn]

    known = {"delegation": delegations[0]}
    another = {"headers": known, "changing": (":path",), "make": catalog_paths, "distinct": DISTINCT}
    every_case = [
        # Another request with a cached delegation: no signature to verify.
        case("hot", **another),
        # The same request byte for byte, which the decision cache answers.
        case("repeat", headers=known),
        # Like hot, with a header for each part of the identity.
        case("hot_separate", identity="separate", **another),
        # A new leaf under a known parent: one signature.
        case("cold", changing=("delegation",), make=new_leaves),
        # A cached delegation and a new proof: one signature, and the memory of used proofs.
        case("proof", proof="pop", changing=("delegation", "delegation-proof"), make=proofs, good_for_seconds=20),
        # A delegation that is verified each time, with a known key.
        case("uncached", limits={"cache_entries": 0, "shared_cache_entries": 0}, headers=known),
        # A delegation that another worker has verified.
        case("shared", limits={"cache_entries": 0}, headers=known),
        # Like hot, in shadow mode.
        case("shadow", mode="shadow", **another),
        # One of ten like cold, the others like hot.
        case("mixed", changing=("delegation", ":path"), make=mixture, most_per_second=50_000),
    ]
    return [case for case in every_case if case.name in names]


def paths(prefix: str, count: int) -> list[tuple[str, ...]]:
    """Paths of equal length, for this many items."""
    return [(f"{prefix}/{ITEM}-{number:06}",) for number in range(count)]


def catalog_paths(count: int) -> list[tuple[str, ...]]:
    return paths("/v1/catalog", count)


@dataclass(frozen=True)
class Followed:
    """The data that a filter needs about a control plane or its stand-in."""

    log_id: str
    grpc_port: int


def case_of(
    name: str,
    issuer: dict,
    plane: ControlPlane | Followed,
    module: Path,
    limits: dict,
    delegation: str,
    audit: dict | None = None,
) -> Case:
    """One delegation, always the same, and another request each time, for the rule without a proof."""
    own_name = f"credence_{name}"
    settings = configuration(issuer, own_name, plane.log_id, limits, audit=audit)
    return Case(
        name,
        filters=[wasm_filter(own_name, module, settings)],
        path=f"/v1/catalog/{ITEM}",
        headers={"delegation": delegation},
        changing=(":path",),
        make=catalog_paths,
        distinct=DISTINCT,
        status_without_headers=401,
        clusters=[grpc_cluster(own_name, plane.grpc_port)],
    )


def cases_with_rules(
    tool: Tool, plane: ControlPlane, module: Path, scratch: Path, counts: tuple[int, ...]
) -> list[Case]:
    """This many services with a rule each, and requests that match the last rule but one, another one each time."""
    issuer_key, agent_key = scratch / "issuer.jwk", scratch / "agent.jwk"
    issuer = tool.keygen(issuer_key)
    tool.keygen(agent_key)
    delegation = tool.mint(issuer_key, agent_key)

    def case(count: int) -> Case:
        name = f"credence_rules_{count}"
        settings = configuration(issuer, name, plane.log_id, limits={})
        services = ((f"service-{number}", f"/v1/service-{number}/items/{{item}}") for number in range(count))
        prefix = f"/v1/service-{max(count - 2, 0)}/items"
        settings["rules"] = [rule(service, path, TOOL, "none") for service, path in services]
        return Case(
            f"rules_{count}",
            filters=[wasm_filter(name, module, settings)],
            path=f"{prefix}/{ITEM}",
            headers={"delegation": delegation},
            changing=(":path",),
            make=partial(paths, prefix),
            distinct=DISTINCT,
            status_without_headers=401,
            clusters=[grpc_cluster(name, plane.grpc_port)],
        )

    return [case(count) for count in counts]


def configuration(
    issuer: dict,
    cluster: str,
    log_id: str,
    limits: dict,
    proof: str = "none",
    identity: str = "dictionary",
    audit: dict | None = None,
) -> dict:
    """As docs/reference/configuration.md describes it. The last rule is the one for the catalog in
    envoy-config/envoy.yaml."""
    others = [rule(f"other-{number}", f"/v1/other-{number}/{{item}}", f"other-{number}.read", proof) for number in range(RULES - 1)]
    return {
        "audience": [AUDIENCE],
        "trust_anchors": [{"issuer": ISSUER, "jwk": issuer, "asserts_subjects": True}],
        "control_plane": {"cluster": cluster, "log_id": log_id},
        "identity": {"headers": identity},
        "limits": limits,
        "audit": audit or {},
        "rules": [*others, rule("catalog", "/v1/catalog/{item}", TOOL, proof)],
    }


def rule(name: str, path: str, tool: str, proof: str) -> dict:
    return {
        "name": name,
        "match": {"methods": ["GET"], "path": path},
        "tool": tool,
        "args": {"item": {"path": "item"}},
        "proof": proof,
    }
