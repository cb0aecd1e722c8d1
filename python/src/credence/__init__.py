"""Delegations for AI agents: hold them, hand on narrower ones, and present them with each request.

Hooks for HTTP clients and frameworks are in modules of their own, because each needs its library:

| module | for |
|---|---|
| `credence.httpx` | `httpx` |
| `credence.requests` | `requests` |
| `credence.mcp` | the MCP client of `mcp` |
| `credence.langchain` | tools of LangChain and LangGraph |
"""

from .agent import Agent
from .delegation import Delegation, dpop, inspect
from .errors import CredenceError, Denied, InputError, ModuleError, RulesError
from .keys import Key, Signer, thumbprint
from .service import AccessToken, Presentation, Request, Rules, Service
from .verify import verify

__all__ = [
    "AccessToken",
    "Agent",
    "CredenceError",
    "Delegation",
    "Denied",
    "InputError",
    "Key",
    "ModuleError",
    "Presentation",
    "Request",
    "Rules",
    "RulesError",
    "Service",
    "Signer",
    "dpop",
    "inspect",
    "thumbprint",
    "verify",
]
