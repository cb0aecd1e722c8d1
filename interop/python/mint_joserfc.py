import json, time, uuid
from pathlib import Path
from joserfc import jwk, jwt

key = jwk.import_key(json.loads(Path("issuer.jwk").read_text()))
tool = {"account": {"constraint_type": "exact", "value": "a1"}, "amount": {"constraint_type": "range", "max": 100}}
now = int(time.time())
claims = {"iss": "https://id.example.com", "sub": "ada", "rev_epoch": 0, "aud": "https://payments.example",
          "jti": str(uuid.uuid4()), "iat": now, "exp": now + 3600, "del_depth": 0, "del_max_depth": 1,
          "cnf": {"jwk": json.loads(Path("planner.pub").read_text())},
          "authorization_details": [{"type": "attenuating_agent_token", "tools": {"payments.charge": tool}}]}
print(jwt.encode({"alg": "Ed25519", "typ": "aat+jwt"}, claims, key, algorithms=["Ed25519"]))
