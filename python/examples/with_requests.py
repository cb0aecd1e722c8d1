import sys
from pathlib import Path

import requests

import credence
from credence.requests import DelegationAdapter

origin, audience = sys.argv[1:]

delegation = credence.Delegation.parse(Path("delegation.txt").read_text())
agent = credence.Agent(delegation, credence.Key.load("agent.jwk"), credence.Service(origin, audience=audience))

session = requests.Session()
session.mount(f"{origin}/", DelegationAdapter(agent))
print(session.post(f"{origin}/v1/accounts/a1/charges", params={"amount": 15}).status_code)
