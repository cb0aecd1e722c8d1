"""`python -m credence verify --jsonl`: decides cases, as `credence verify --jsonl` does."""

from __future__ import annotations

import json
from typing import BinaryIO, TextIO

from .module import shared

MAX_LINE = 16 << 20
"""The length of a line, in bytes."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def verify(case: str | bytes) -> dict[str, object]:
    """Decides one case: a JSON object with `id`, `anchors`, `chain`, `proof`, `tool`, `args`, `now`,
    `audience` and `policy`.

    Returns:
        `answer` (`id`, `decision`, `step`, `reason`), `notes` for people, and `is_case`: whether the text is a case. A
        text that is none is denied.
    """
    return shared.call({"verify": {}}, case.encode() if isinstance(case, str) else case)


def verify_lines(cases: BinaryIO, answers: BinaryIO, notes: TextIO) -> int:
    """Answers each line that is not blank, at once. Lines that are not cases are denied and named in `notes`.

    Returns:
        The exit code: 2 if a line was not a case, otherwise 0.
    """
    malformed = 0
    number = 0
    while line := cases.readline(MAX_LINE + 1):
        number += 1
        if not line.endswith(b"\n") and len(line) > MAX_LINE:
            _skip_line(cases)
        line = line.removesuffix(b"\n")
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line.strip():
            continue
        answered = shared.call({"verify": {}}, line)
        for note in answered["notes"]:
            print(f"line {number}: {note}", file=notes, flush=True)
        malformed += not answered["is_case"]
        answers.write(json.dumps(answered["answer"], separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
        answers.flush()
    if malformed:
        print(f"{malformed} lines are not cases and were answered with deny; fix the errors above", file=notes)
    return 2 if malformed else 0


def _skip_line(lines: BinaryIO) -> None:
    while (chunk := lines.readline(1 << 20)) and not chunk.endswith(b"\n"):
        pass
