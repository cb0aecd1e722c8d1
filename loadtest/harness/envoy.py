"""A real Envoy with a listener for each case."""

import http.client
import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from .case import Case
from .process import resident_mib

# The measured worker runs here; load comes from the other core.
ENVOY_CORE = "0"
START_LIMIT_SECONDS = 30
DELIVERY_LIMIT_SECONDS = 60
TYPES = "type.googleapis.com/envoy.extensions.filters"


@dataclass(frozen=True)
class Answers:
    """How many requests were answered, and how many of them successfully."""

    all: int
    successes: int

    def __sub__(self, before: "Answers") -> "Answers":
        return Answers(self.all - before.all, self.successes - before.successes)


class Envoy:
    """Runs from `with` to its end, `under` another program if given. The kernel chooses the ports, so that two runs
    never collide."""

    def __init__(
        self,
        binary: str,
        cases: list[Case],
        scratch: Path,
        cores: str = ENVOY_CORE,
        under: Sequence[str | Path] = (),
    ):
        self._command = [*under, binary]
        self._cases = [case for case in cases if case.at is None]
        self._scratch = scratch
        self._cores = cores
        self._ports: dict[str, int] = {}

    def __enter__(self) -> "Envoy":
        configuration = self._scratch / "envoy.json"
        configuration.write_text(json.dumps(bootstrap(self._cases)))
        self._admin_address = self._scratch / "admin-address"
        self._admin_address.unlink(missing_ok=True)  # an earlier Envoy's
        self._log = self._scratch / "envoy.log"
        self._process = subprocess.Popen(
            # Its own base id, so that it can run beside another Envoy.
            ["taskset", "-c", self._cores, *self._command, "-c", configuration]
            # A worker for each core.
            + ["--concurrency", str(self._cores.count(",") + 1)]
            + ["--use-dynamic-base-id", "--log-level", "warning", "--log-path", self._log]
            + ["--admin-address-path", self._admin_address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._ports = self._wait_for_listeners()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def url(self, case: Case) -> str:
        return f"http://127.0.0.1:{self.port(case)}{case.path}"

    def port(self, case: Case) -> int:
        return self._ports[case.at or case.name]

    def pin_workers(self) -> None:
        """Pins each worker to a core: the first to the first."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        names = {(thread / "comm").read_text().strip(): int(thread.name) for thread in threads}
        for number, core in enumerate(self._cores.split(",")):
            os.sched_setaffinity(names[f"wrk:worker_{number}"], {int(core)})

    def settled_memory_mib(self) -> float:
        """The resident memory once it has stopped growing, after all threads have loaded."""
        before, now = 0.0, resident_mib(self.pid)
        while now - before > 0.5:
            time.sleep(1)
            before, now = now, resident_mib(self.pid)
        return now

    def answers(self, case: Case) -> Answers:
        """The counts of the case's listener so far."""
        listener = case.at or case.name
        requests = f"http.{listener}.downstream_rq"
        return Answers(all=self.counter(f"{requests}_completed"), successes=self.counter(f"{requests}_2xx"))

    def counters(self, pattern: str) -> dict[str, int]:
        """Envoy's statistics with names that match this regular expression."""
        text = self._admin(f"/stats?filter={quote(f'^{pattern}$')}").decode()
        lines = (line.rsplit(": ", 1) for line in text.splitlines())
        return {name: int(value) for name, value in lines if value.isdigit()}

    def counter(self, name: str) -> int:
        counters = self.counters(re.escape(name))
        if name not in counters:
            raise SystemExit(f"error: Envoy has no counter {name}")
        return counters[name]

    def wait_for_delivery(self) -> None:
        """Waits until the control plane has acknowledged all evidence: no acknowledgement for more than a second."""
        deadline = time.monotonic() + DELIVERY_LIMIT_SECONDS
        last, since = -1, time.monotonic()
        while time.monotonic() < deadline:
            acknowledged = self.counter("wasmcustom.credence_audit_acknowledged")
            now = time.monotonic()
            if acknowledged != last:
                last, since = acknowledged, now
            elif now - since > 1.2:
                return
            time.sleep(0.1)
        raise SystemExit("error: the control plane still acknowledges evidence a minute after the load")

    @property
    def admin_port(self) -> int:
        return int(self._admin_address.read_text().rpartition(":")[2])

    def check(self, case: Case) -> None:
        """Fails unless the case answers 200, and the stated status without its headers."""
        if case.headers or case.make:
            self._expect(case, case.status_without_headers, with_headers=False)
        self._expect(case, 200, with_headers=True)

    def _expect(self, case: Case, expected: int, with_headers: bool) -> None:
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while True:
            changing = dict(zip(case.changing, case.make(1)[0] if case.make else (), strict=True))
            path = changing.pop(":path", case.path)
            status, body = self._request(case, path, case.headers | changing if with_headers else {})
            # 503 means "not yet" while a filter waits for its control plane. So does a proof that predates its memory.
            is_early = status == 503 or "proof_predates_memory" in body
            if not is_early or status == expected or time.monotonic() >= deadline:
                break
            time.sleep(0.1)
        if status != expected:
            given = "with" if with_headers else "without"
            raise SystemExit(
                f"error: case {case.name} answered {status} {given} its headers, expected {expected}: {body}\n"
                f"{self._log_tail()}"
            )

    def _request(self, case: Case, path: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port(case), timeout=5)
        try:
            connection.request(case.method, path, body=case.body.encode() or None, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        finally:
            connection.close()

    def _wait_for_listeners(self) -> dict[str, int]:
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise SystemExit(f"error: Envoy exited with {self._process.returncode}\n{self._log_tail()}")
            ports = self._listener_ports()
            if len(ports) == len(self._cases):
                return ports
            time.sleep(0.05)
        raise SystemExit(f"error: Envoy did not open its listeners in {START_LIMIT_SECONDS} s\n{self._log_tail()}")

    def _listener_ports(self) -> dict[str, int]:
        try:
            if self._admin("/ready").strip() != b"LIVE":
                return {}
            listeners = json.loads(self._admin("/listeners?format=json"))["listener_statuses"]
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return {}  # not up yet
        return {listener["name"]: listener["local_address"]["socket_address"]["port_value"] for listener in listeners}

    def _admin(self, target: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=5)
        try:
            connection.request("GET", target)
            return connection.getresponse().read()
        finally:
            connection.close()

    def _log_tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join(lines[-20:])


def wasm_filter(name: str, module: Path, configuration: dict | None = None, reads_bodies: bool = False) -> dict:
    """A filter from a module, in its own VM."""
    settings: dict = {
        "name": name,
        "root_id": name,
        "failure_policy": "FAIL_RELOAD",
        "vm_config": {
            "vm_id": name,
            "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"filename": str(module)}},
        },
    }
    if reads_bodies:
        settings["allow_on_headers_stop_iteration"] = True
    if configuration is not None:
        settings["configuration"] = {
            "@type": "type.googleapis.com/google.protobuf.Struct",
            "value": configuration,
        }
    return {"name": name, "typed_config": {"@type": f"{TYPES}.http.wasm.v3.Wasm", "config": settings}}


def grpc_cluster(name: str, port: int) -> dict:
    """A cluster of one server on this machine that speaks gRPC without TLS."""
    server = {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
    options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    http2 = {"@type": f"type.googleapis.com/{options}", "explicit_http_config": {"http2_protocol_options": {}}}
    return {
        "name": name,
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {options: http2},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [server]}]},
    }


def bootstrap(cases: list[Case]) -> dict:
    return {
        "admin": {"address": loopback()},
        "static_resources": {
            "listeners": [listener(case) for case in cases],
            "clusters": [cluster for case in cases for cluster in case.clusters],
        },
    }


def listener(case: Case) -> dict:
    router = {"name": "router", "typed_config": {"@type": f"{TYPES}.http.router.v3.Router"}}
    # The same for all cases: no upstream, since its cost would blur the result.
    route = {"match": {"prefix": "/"}, "direct_response": {"status": 200}}
    manager = {
        "@type": f"{TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": case.name,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [*case.filters, router],
        "max_request_headers_kb": case.headers_kib,
        "common_http_protocol_options": {"max_headers_count": case.headers_count},
    }
    return {
        "name": case.name,
        "address": loopback(),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        # Envoy's default, unless a case needs more: the most of a body that a filter may hold.
        "per_connection_buffer_limit_bytes": case.body_bytes,
        # By default the kernel chooses a connection's worker, and one worker may get most of them.
        "connection_balance_config": {"exact_balance": {}},
    }


def loopback() -> dict:
    return {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
