"""Hardware limits of the platform definition: threads per core, blocked devices, NUMA domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_agent.resource_manager.base import Domain
from rp_api.errors import PlatformError


def threads_per_core(platform: Mapping[str, Any], environ: Mapping[str, str]) -> int:
    """Return the number of hardware threads per core that count as cores; RADICAL_SMT overrides the platform."""
    value = environ.get('RADICAL_SMT') or _architecture(platform).get('smt') or 1
    if not str(value).isdecimal() or int(value) < 1:
        raise PlatformError(f'system_architecture.smt (or the variable RADICAL_SMT) must be a whole number of at least '
                            f'1, not {value!r}')
    return int(value)


def blocked(platform: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Return the indices in `blocked_cores` or `blocked_gpus`, sorted."""
    value = _architecture(platform).get(name) or ()
    if not isinstance(value, list | tuple) or not all(isinstance(index, int) and index >= 0 for index in value):
        raise PlatformError(f'system_architecture.{name} must be a list of indices, not {value!r}')
    return tuple(sorted(set(value)))


def usable(there: int, without: tuple[int, ...]) -> int:
    """Return the number of devices that are not blocked."""
    return there - sum(index < there for index in without)


def domains(platform: Mapping[str, Any], cores: int, gpus: int) -> tuple[Domain, ...]:
    """Return the NUMA domains of the platform definition by number, limited to the devices of a node."""
    found = (platform.get('numa_domain_map') or {}).items()
    return tuple((tuple(index for index in members.get('cores', ()) if index < cores),
                  tuple(index for index in members.get('gpus', ()) if index < gpus))
                 for _, members in sorted(found, key=lambda each: int(each[0])))


def _architecture(platform: Mapping[str, Any]) -> Mapping[str, Any]:
    return platform.get('system_architecture') or {}
