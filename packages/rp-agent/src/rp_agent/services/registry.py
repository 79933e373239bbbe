"""The registry of service instances: which ones a name has, where they listen, and which are healthy. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class ServiceInstance(NamedTuple):
    """An instance of a service, as it was when it last became ready."""

    uid: str
    """The uid of its task; of a service outside the pilot, the uid that it was registered with."""
    name: str
    """The name of the service, which several instances can share."""
    host: str = ''
    """The name of its node; '' if it is unknown."""
    port: int = 0
    """The port that it listens on; 0 if it is unknown."""
    info: str = ''
    """The information for its users, such as a URL."""
    healthy: bool = True
    """False between the failure of an instance and its return."""


class Registry:
    """The instances of all services of a pilot, in the order in which they first became ready.

    Listeners are called with the name of a service after each change of its instances or of its information.
    """

    def __init__(self) -> None:
        self._instances: dict[str, ServiceInstance] = {}
        self._endpoints: dict[str, str] = {}
        self._last: dict[str, str] = {}   # by name, the uid of the instance that was picked last
        self._listeners: list[Callable[[str], object]] = []

    def on_change(self, listener: Callable[[str], object]) -> None:
        """Call `listener` with the name of a service after each change."""
        self._listeners.append(listener)

    def put(self, instance: ServiceInstance) -> None:
        """Add an instance, or replace the record of its uid."""
        old = self._instances.get(instance.uid)
        if old != instance:
            self._instances[instance.uid] = instance
            self._changed(instance.name)

    def withdraw(self, uid: str) -> None:
        """Mark an instance as not healthy, which may come back; no effect if it is unknown."""
        instance = self._instances.get(uid)
        if instance is not None:
            self.put(instance._replace(healthy=False))

    def remove(self, uid: str) -> None:
        """Remove an instance, which does not come back; no effect if it is unknown."""
        instance = self._instances.pop(uid, None)
        if instance is not None:
            self._changed(instance.name)

    def instance(self, uid: str) -> ServiceInstance | None:
        """Return the instance of that uid; None if it is unknown."""
        return self._instances.get(uid)

    def instances(self, name: str) -> list[ServiceInstance]:
        """Return all instances of a service."""
        return [each for each in self._instances.values() if each.name == name]

    def healthy(self, name: str) -> list[ServiceInstance]:
        """Return the healthy instances of a service."""
        return [each for each in self.instances(name) if each.healthy]

    def set_endpoint(self, name: str, endpoint: str) -> None:
        """Give users of a service this address, instead of that of an instance; '' ends this."""
        if self._endpoints.get(name, '') != endpoint:
            self._endpoints[name] = endpoint
            self._changed(name)

    def endpoint(self, name: str) -> str:
        """Return the address that was set for a service; '' without one."""
        return self._endpoints.get(name, '')

    def info(self, name: str, known: str | None = None) -> str | None:
        """Return the information for the next user of a service: that of its healthy instances in turn.

        Args:
            name: The name of the service.
            known: The information that the user has already, which it keeps if it is that of a healthy instance.

        Returns:
            The endpoint of the service if it has one; None if it has no healthy instance.
        """
        healthy = self.healthy(name)
        if not healthy:
            return None
        endpoint = self._endpoints.get(name)
        if endpoint:
            return endpoint
        if any(each.info == known for each in healthy):
            return known
        uids = [each.uid for each in self.instances(name)]
        last = self._last.get(name)
        start = uids.index(last) + 1 if last in uids else 0
        in_turn = uids[start:] + uids[:start]
        chosen = min(healthy, key=lambda each: in_turn.index(each.uid))
        self._last[name] = chosen.uid
        return chosen.info

    def _changed(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)


def variable(name: str) -> str:
    """Return the name of the environment variable that has the information of a service."""
    return 'RP_INFO_' + re.sub(r'[^A-Z0-9_]', '_', name.upper())
