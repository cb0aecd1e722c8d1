"""Compares `credence verify --jsonl` with verifier.py over generated cases.

    compare.py CREDENCE CASES SEED

The last line of the output is one JSON object. Each disagreement is printed before it, with its case. The exit code is 1 if
there is one, or if hardly any case is allowed or denied.
"""

import json
import subprocess
import sys
from collections import Counter

from generator import Generator
from verifier import decide

BATCH = 2_000
# Cases that are printed of each kind of disagreement.
MOST_PRINTED = 3


def main():
    credence, cases, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    generator = Generator(seed)
    counts = Counter()
    reasons = Counter()
    kinds = Counter()
    for start in range(0, cases, BATCH):
        lines = [generator.case(number) for number in range(start, min(start + BATCH, cases))]
        for line, answer in zip(lines, answers(credence, lines), strict=True):
            is_allowed, why = decide(line)
            counts["allowed" if is_allowed else "denied"] += 1
            reasons[why] += 1
            if answer["step"] is None and answer["decision"] == "deny":
                fail(f"Credence did not evaluate a case: {answer['reason']}: {line}")
            if is_allowed != (answer["decision"] == "allow"):
                counts["disagreements"] += 1
                said = f"{answer['decision']} at {answer['step']}: {answer['reason']}"
                said = f"disagreement: the oracle {'allows' if is_allowed else 'denies: ' + why}; Credence: {said}"
                kinds[said] += 1
                if kinds[said] <= MOST_PRINTED:
                    print(f"{said}\n  {line}")
    for why, count in reasons.most_common():
        print(f"  {count:>8}  {why or 'allowed'}", file=sys.stderr)
    result = {
        "cases": cases,
        "disagreements": counts["disagreements"],
        "allowed": counts["allowed"],
        "denied": counts["denied"],
        "seed": seed,
    }
    is_mixed = 0.3 <= counts["allowed"] / cases <= 0.7
    if not is_mixed:
        print("error: a share of allowed cases from 30 to 70 % is needed", file=sys.stderr)
    print(json.dumps(result))
    sys.exit(0 if is_mixed and not counts["disagreements"] else 1)


def answers(credence, lines):
    """Credence's answers to the lines, in their order."""
    text = "\n".join(lines) + "\n"
    ran = subprocess.run(
        [credence, "verify", "--jsonl"], input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False
    )
    if ran.returncode != 0:
        fail(f"`credence verify --jsonl` failed: {ran.stderr.decode()[-2000:]}")
    return [json.loads(line) for line in ran.stdout.splitlines()]


def fail(why):
    print(f"error: {why}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
