"""One end of the interoperability matrix: a JSON request on each line of standard input, an answer on each of output.

| request | answer |
|---|---|
| `{"do":"derive","chain","key","holder","tools","audience","lifetime","max_depth"}` | `{"ok":chain}` |
| `{"do":"prove","chain","key","tool","arguments","audience","nonce"}` | `{"ok":jwt}` |
| `{"do":"verify","case"}` | `{"ok":{"decision","step"}}` |
| `{"do":"request","url","method","headers","body","chain","key","rules","audience"}` | `{"ok":{"status"}}` |

A denial is `{"denied":reason}`, any other failure `{"error":text}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx

import credence
from credence.httpx import DelegationAuth

Members = dict[str, Any]


def derive(members: Members) -> str:
    parent = credence.Delegation.parse(members["chain"])
    derived = parent.derive(
        credence.Key.from_jwk(members["key"]),
        holder=members["holder"],
        tools=members["tools"],
        audience=members.get("audience") or (),
        lifetime=members.get("lifetime") or 3600,
        max_depth=members.get("max_depth"),
    )
    return derived.text


def prove(members: Members) -> str:
    delegation = credence.Delegation.parse(members["chain"])
    key = credence.Key.from_jwk(members["key"])
    names = {name: members.get(name) for name in ("audience", "nonce")}
    return delegation.prove(key, members["tool"], members["arguments"], **names)


def verify(members: Members) -> Members:
    answer: Any = credence.verify(json.dumps(members["case"]))["answer"]
    return {"decision": answer["decision"], "step": answer["step"]}


def request(members: Members) -> Members:
    url = urlsplit(members["url"])
    origin = f"{url.scheme}://{url.netloc}"
    audience = members.get("audience") or ()
    if members.get("rules"):
        service = credence.Service.from_file(origin, members["rules"], audience=audience)
    else:
        service = credence.Service(origin, audience=audience)
    key = credence.Key.from_jwk(members["key"])
    agent = credence.Agent(credence.Delegation.parse(members["chain"]), key, service)
    headers = members.get("headers") or {}
    with httpx.Client(auth=DelegationAuth(agent), trust_env=False) as client:
        response = client.request(members["method"], members["url"], headers=headers, content=members.get("body"))
    return {"status": response.status_code}


OPERATIONS: dict[str, Callable[[Members], Any]] = {
    "derive": derive,
    "prove": prove,
    "verify": verify,
    "request": request,
}


def answer(line: str) -> Members:
    try:
        members = json.loads(line)
        return {"ok": OPERATIONS[members["do"]](members)}
    except credence.Denied as denied:
        return {"denied": denied.reason}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(answer(line)), flush=True)


if __name__ == "__main__":
    main()
