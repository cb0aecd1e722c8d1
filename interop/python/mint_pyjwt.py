import json, time, uuid
from pathlib import Path
import jwt

jwt.register_algorithm("Ed25519", jwt.algorithms.OKPAlgorithm())  # until PyJWT knows it by itself
key = jwt.PyJWK.from_json(Path("issuer.jwk").read_text()).key
tool = {"account": {"constraint_type": "exact", "value": "a1"}, "amount": {"constraint_type": "range", "max": 100}}
now = int(time.time())
claims = {"iss": "https://id.example.com", "sub": "ada", "rev_epoch": 0, "aud": "https://payments.example",
          "jti": str(uuid.uuid4()), "iat": now, "exp": now + 3600, "del_depth": 0, "del_max_depth": 1,
          "cnf": {"jwk": json.loads(Path("planner.pub").read_text())},
          "authorization_details": [{"type": "attenuating_agent_token", "tools": {"payments.charge": tool}}]}
print(jwt.encode(claims, key, algorithm="Ed25519", headers={"typ": "aat+jwt"}))
