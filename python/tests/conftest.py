"""What tests share: keys, a delegation, and a service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import credence

from .minting import AUDIENCE, mint
from .servers import Payments, Server, serving


@pytest.fixture(scope="session")
def issuer() -> credence.Key:
    return credence.Key.generate()


@pytest.fixture
def key() -> credence.Key:
    return credence.Key.generate()


@pytest.fixture
def delegation(issuer: credence.Key, key: credence.Key) -> credence.Delegation:
    return credence.Delegation.parse(mint(issuer, key.public_jwk))


@pytest.fixture
def payments(issuer: credence.Key) -> Payments:
    return Payments(issuer)


@pytest.fixture
def server(payments: Payments) -> Iterator[Server]:
    with serving(payments) as server:
        yield server


@pytest.fixture
def service(server: Server) -> credence.Service:
    return credence.Service(server.origin, audience=AUDIENCE)


@pytest.fixture
def agent(delegation: credence.Delegation, key: credence.Key, service: credence.Service) -> credence.Agent:
    return credence.Agent(delegation, key, service)
