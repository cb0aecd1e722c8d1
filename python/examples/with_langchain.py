from pathlib import Path

from langchain_core.tools import tool

import credence
from credence.langchain import delegated


@tool("payments.charge")
def charge(account: str, amount: int) -> str:
    """Charges an account."""
    return f"charged {account} {amount}"


delegation = credence.Delegation.parse(Path("delegation.txt").read_text())
safe = delegated(charge, delegation)
print(safe.invoke({"account": "a1", "amount": 15}))
print(safe.invoke({"account": "a1", "amount": 1000}))
