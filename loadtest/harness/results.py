"""The result file of a benchmark, which is committed: raw samples, figures and their origin."""

import hashlib
import json
import subprocess
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FOLDER = REPOSITORY / "loadtest" / "results"


def write(file: Path, benchmark: str, facts: dict[str, str], method: dict, samples: dict, report: dict) -> None:
    """`report` has `figures`, and `ratios`, which agree between two runs of the same code on the same machine."""
    document = {
        "benchmark": benchmark,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit(),
        "facts": facts,
        "method": method,
        **report,
        "samples": samples,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dump(document) + "\n", encoding="utf-8")


def read(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def dump(value: object, indent: int = 0) -> str:
    """Like json.dumps, with lists and objects of plain values on one line each: a sample a line."""
    space = " " * (indent + 1)
    if isinstance(value, dict) and any(isinstance(member, (dict, list)) for member in value.values()):
        members = (f"{space}{json.dumps(name)}: {dump(member, indent + 1)}" for name, member in value.items())
        return "{\n" + ",\n".join(members) + "\n" + " " * indent + "}"
    if isinstance(value, list) and any(isinstance(member, (dict, list)) for member in value):
        return "[\n" + ",\n".join(space + dump(member, indent + 1) for member in value) + "\n" + " " * indent + "]"
    return json.dumps(value, ensure_ascii=False)


def commit() -> str:
    """The measured commit. Results of earlier runs and the page made of them do not count as a change."""
    head = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!loadtest/results", ":!docs")
    return f"{head}, with uncommitted changes" if changed else head


def git(*arguments: str) -> str:
    outcome = subprocess.run(["git", "-C", REPOSITORY, *arguments], check=False, capture_output=True, text=True)
    return outcome.stdout.strip() or ("" if outcome.returncode == 0 else "unknown")


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
