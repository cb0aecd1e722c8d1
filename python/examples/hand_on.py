import json
from pathlib import Path

import credence

key = credence.Key.load("agent.jwk")
delegation = credence.Delegation.parse(Path("delegation.txt").read_text())
narrower = delegation.derive(
    key,
    holder=json.loads(Path("worker.pub").read_text()),
    tools={
        "payments.charge": {
            "account": {"constraint_type": "exact", "value": "a1"},
            "amount": {"constraint_type": "range", "max": 20},
        }
    },
    lifetime=600,
)
file = Path("worker-delegation.txt")
file.touch(mode=0o600)
file.write_text(narrower.text)
