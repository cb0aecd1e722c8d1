"""The program that the interoperability matrix runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import credence

from .minting import AUDIENCE, case, mint
from .servers import RULES, Server

CALL = {"account": "a1", "amount": 15}


def test_it_derives_proves_verifies_and_requests(issuer: credence.Key, server: Server, tmp_path: Path) -> None:
    planner, worker = credence.Key.generate("ES256"), credence.Key.generate()
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    constraints = {
        "account": {"constraint_type": "exact", "value": "a1"},
        "amount": {"constraint_type": "range", "max": 20},
    }
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("peer.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(do: str, **members: Any) -> Any:
            stdin.write(json.dumps({"do": do, **members}) + "\n")
            stdin.flush()
            return json.loads(stdout.readline())

        chain = ask(
            "derive",
            chain=mint(issuer, planner.public_jwk),
            key=planner.to_private_jwk(),
            holder=worker.public_jwk,
            tools={"payments.charge": constraints},
            audience=[AUDIENCE],
            lifetime=60,
            max_depth=1,
        )["ok"]
        held: dict[str, Any] = {"chain": chain, "key": worker.to_private_jwk()}
        proof = ask("prove", **held, tool="payments.charge", arguments=CALL, audience=AUDIENCE, nonce=None)["ok"]
        decided = ask("verify", case=json.loads(case(issuer, chain, "payments.charge", CALL, proof)))
        assert decided == {"ok": {"decision": "allow", "step": None}}

        def request(amount: int, rules: str | None) -> Any:
            url = f"{server.origin}/v1/accounts/a1/charges?amount={amount}"
            return ask(
                "request", **held, url=url, method="POST", headers={}, body="x", rules=rules, audience=[AUDIENCE]
            )

        assert request(15, str(tmp_path / "rules.json")) == {"ok": {"status": 200}}
        assert request(15, None) == {"ok": {"status": 200}}
        assert request(50, None) == {"denied": "argument_not_allowed"}
        assert "error" in ask("unknown")
        stdin.close()
