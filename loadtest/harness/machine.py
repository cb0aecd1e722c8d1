"""The machine of a measurement: whether it is suitable, and the versions to report with the figures."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

PACKAGES = {"wrk": "wrk", "taskset": "util-linux", "openssl": "openssl"}


def check(*more: str) -> None:
    """Ends with an error that names what is missing and how to get it. `more` are commands whose packages have the same
    names."""
    needed = PACKAGES | {command: command for command in more}
    missing = [package for command, package in needed.items() if shutil.which(command) is None]
    if missing:
        packages = " ".join(missing)
        raise SystemExit(f"error: missing: {packages}\n       On Debian or Ubuntu:  sudo apt-get install {packages}")
    if not {0, 1} <= os.sched_getaffinity(0):
        raise SystemExit("error: cores 0 and 1 are needed: one for Envoy, one for the load")
    if not Path("/proc/self/schedstat").exists():
        raise SystemExit("error: this kernel has no /proc/PID/schedstat (CONFIG_SCHED_INFO): CPU times come from it")


def describe(envoy: str) -> None:
    for name, what in facts(envoy).items():
        print(f"{name:<9}{what}")


def facts(envoy: str) -> dict[str, str]:
    linux = platform.release().split("-")[0]
    return {
        "machine": f"{cpu_model()}, {os.cpu_count()} cores, Linux {linux}, {platform.machine()}",
        "envoy": first_match(r"version: (.*)", output(envoy, "--version")),
        "wrk": first_match(r"wrk (.*?) Copyright", output("wrk", "-v")),
    }


def cpu_model() -> str:
    return first_match(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))


def output(*command: str) -> str:
    # `wrk -v` exits with 1.
    return subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def first_match(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1].strip() if match else "unknown"
