"""The command line: `python -m credence verify --jsonl`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .verify import verify_lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns its exit code: 2 for wrong usage or input."""
    parser = argparse.ArgumentParser(prog="python -m credence")
    commands = parser.add_subparsers(dest="command", required=True)
    verify = commands.add_parser("verify", help="decide cases: one on each line of standard input")
    verify.add_argument("--jsonl", action="store_true", required=True, help="the form of the lines, which is JSON")
    parser.parse_args(arguments)
    return verify_lines(sys.stdin.buffer, sys.stdout.buffer, sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
