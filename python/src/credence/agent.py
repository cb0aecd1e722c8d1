"""An agent: a credential, its key, and the services that it may be shown to."""

from __future__ import annotations

from collections.abc import Sequence

from .delegation import Delegation
from .errors import InputError
from .keys import Signer, thumbprint
from .origin import Origin
from .service import AccessToken, Service, is_local


class Agent:
    """What HTTP clients act as.

    Args:
        credential: The delegation or access token. Assign a new one to `credential` when it is renewed.
        signer: The key that the credential names. None only for an access token without a key.
        services: The services that get the credential. Requests to other origins carry nothing.

    Raises:
        InputError: The delegation is for another key, or two services have the same origin.
    """

    def __init__(
        self,
        credential: Delegation | AccessToken,
        signer: Signer | None,
        services: Service | Sequence[Service],
    ) -> None:
        self.signer = signer
        self.credential = credential
        listed = [services] if isinstance(services, Service) else list(services)
        self._services = {service.origin: service for service in listed}
        if len(self._services) != len(listed):
            raise InputError("two services have the same origin; give each origin once")

    @property
    def credential(self) -> Delegation | AccessToken:
        """The current credential."""
        return self._credential

    @credential.setter
    def credential(self, credential: Delegation | AccessToken) -> None:
        if isinstance(credential, Delegation) and self.signer is not None and credential.holder is not None:
            own = thumbprint(self.signer.public_jwk)
            if credential.holder != own:
                raise InputError(f"the delegation is for the key {credential.holder}, not {own}; use that key")
        self._credential = credential

    def service(self, origin: Origin) -> Service | None:
        """The service at this origin, if it is one of the agent's."""
        return self._services.get(origin)

    def waits_for(self, service: Service) -> bool:
        """Whether presenting the credential there may wait for a network: for rules, or a remote signer."""
        return not (service.is_fresh() and is_local(self.signer))

    def __repr__(self) -> str:
        return f"<Agent {self._credential!r} for {', '.join(map(str, self._services))}>"
