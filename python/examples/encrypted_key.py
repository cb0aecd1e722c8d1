import os

import credence

passphrase = os.environ["AGENT_KEY_PASSPHRASE"]
credence.Key.load("agent.jwk").save_pem("agent.pem", passphrase)
key = credence.Key.load_pem("agent.pem", passphrase)
print(key)
