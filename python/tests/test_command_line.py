"""`python -m credence verify --jsonl`, as a process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import credence

from .minting import AUDIENCE, case

CALL = {"account": "a1", "amount": 15}
COMMAND = [sys.executable, "-m", "credence", "verify", "--jsonl"]


@pytest.fixture
def valid(issuer: credence.Key, delegation: credence.Delegation, key: credence.Key) -> str:
    proof = delegation.prove(key, "payments.charge", CALL, audience=AUDIENCE)
    return case(issuer, delegation.text, "payments.charge", CALL, proof)


def _run(lines: bytes) -> tuple[int, list[str], str]:
    ran = subprocess.run(COMMAND, input=lines, capture_output=True, check=False)
    return ran.returncode, ran.stdout.decode().splitlines(), ran.stderr.decode()


def test_each_line_has_an_answer(valid: str) -> None:
    denied = json.dumps({**json.loads(valid), "id": 1.50, "proof": "a.b.c"})
    code, answers, errors = _run(f"\ufeff{valid}\r\n\n   \n{denied}".encode())
    assert (code, errors) == (0, "")
    assert [json.loads(answer)["decision"] for answer in answers] == ["allow", "deny"]
    assert list(json.loads(answers[0])) == ["id", "decision", "step", "reason"]


def test_a_line_that_is_no_case_is_named(valid: str) -> None:
    code, answers, errors = _run(f'{valid}\n\n{{"id":7}}\n\xff\n'.encode("latin-1"))
    assert code == 2
    assert [json.loads(answer)["decision"] for answer in answers] == ["allow", "deny", "deny"]
    assert json.loads(answers[1])["id"] == 7
    assert "line 3: not a case" in errors
    assert "line 4: not a case" in errors


def test_a_line_has_a_greatest_length(valid: str) -> None:
    long = b'{"id":"long","chain":"' + b"a" * (17 << 20) + b'"}'
    code, answers, errors = _run(long + b"\n" + valid.encode() + b"\n")
    assert code == 2
    assert [json.loads(answer)["decision"] for answer in answers] == ["deny", "allow"]
    assert json.loads(answers[0])["id"] == "long"
    assert "longer than 16777216 bytes" in errors


def test_an_answer_comes_before_the_next_line(valid: str) -> None:
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(3):
            process.stdin.write(valid.encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["decision"] == "allow"
        process.stdin.close()
        assert process.wait() == 0


def test_wrong_usage_has_its_own_exit_code() -> None:
    ran = subprocess.run(COMMAND[:-1], capture_output=True, check=False)
    assert ran.returncode == 2
    assert b"--jsonl" in ran.stderr
