import sys
from pathlib import Path

import httpx

import credence
from credence.httpx import DelegationAuth

origin, audience = sys.argv[1:]

key = credence.Key.load("agent.jwk")
delegation = credence.Delegation.parse(Path("delegation.txt").read_text())
payments = credence.Service(origin, audience=audience)
agent = credence.Agent(delegation, key, payments)

with httpx.Client(auth=DelegationAuth(agent)) as client:
    answer = client.post(f"{origin}/v1/accounts/a1/charges", params={"amount": 15})
    print(answer.status_code)
    try:
        client.post(f"{origin}/v1/accounts/a1/charges", params={"amount": 1000})
    except credence.Denied as denied:
        print(denied.reason, denied.argument)
