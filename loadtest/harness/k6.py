"""Runs the load of loadtest/k6 with k6."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "k6" / "load.js"
# k6's exit code when a threshold was not met. Its figures are still there.
THRESHOLDS_NOT_MET = 99
# Enough for stalls of this many milliseconds: p99 decides whether the rate holds.
USERS_PER_1000 = 300
# k6 has memory to spare, but no time: garbage collection took a tenth of it.
GOGC = "400"


@dataclass(frozen=True)
class K6:
    binary: str
    pool: Path
    envoy: str
    control_plane: str
    token_file: Path
    # The folder for a run's files.
    out: Path
    # In milliseconds.
    p99_limit: float

    def run(self, rate: int, seconds: int, ramp: int = 0, settle: int = 0) -> dict:
        """The summary of a run by load.js (summary.json)."""
        settings = {
            "POOL": self.pool,
            "ENVOY": self.envoy,
            "CONTROL_PLANE": self.control_plane,
            "TOKEN_FILE": self.token_file,
            "OUT": self.out,
            "P99_MS": self.p99_limit,
            "RATE": rate,
            "RAMP": f"{ramp}s",
            "DURATION": f"{seconds}s",
            "SETTLE": settle,
            "VUS": USERS_PER_1000,
        }
        summary = self.out / "summary.json"
        summary.unlink(missing_ok=True)
        command = [self.binary, "run", "--quiet", "--no-usage-report", "--address", ""]
        command += [part for name, value in settings.items() for part in ("-e", f"{name}={value}")]
        # k6 sends no usage report, and fetches no extension.
        environment = os.environ | {"K6_AUTO_EXTENSION_RESOLUTION": "false", "GOGC": GOGC}
        outcome = subprocess.run([*command, SCRIPT], check=False, stdout=sys.stderr, env=environment)
        if outcome.returncode not in (0, THRESHOLDS_NOT_MET) or not summary.exists():
            raise SystemExit(f"error: k6 ended with {outcome.returncode} (its messages are above)")
        return json.loads(summary.read_text())


def holds(summary: dict) -> bool:
    """Whether all requests at this rate were answered correctly and in time."""
    return all(threshold["ok"] for threshold in summary["thresholds"])
