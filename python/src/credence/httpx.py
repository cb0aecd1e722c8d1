"""Delegations for `httpx`, synchronous and asynchronous.

    client = httpx.Client(auth=DelegationAuth(agent))

A request that a client sends after a redirect carries no credential, on any host. Send a new request to the new
address.
"""

from __future__ import annotations

import httpx

from .exchange import ExchangeAuth


class DelegationAuth(ExchangeAuth, httpx.Auth):
    """Presents the agent's credential to its services. Requests to other origins are sent unchanged.

    A body is read only if the service's rule reads it, and then at most 1 MiB. If the service asks for a nonce, the
    request is sent a second time, unless its body is a stream that is already spent.

    Args:
        agent: The agent.
    """

    _headers = httpx.Headers
