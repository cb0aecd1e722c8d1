import json

import credence

key = credence.Key.generate()
key.save("agent.jwk")
print(json.dumps(key.public_jwk))
