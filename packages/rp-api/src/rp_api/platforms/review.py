"""Review of valid platform definitions: unknown names, implausible units, and contradictory numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from rp_api.description.pilot import PilotDescription
from rp_api.platforms.definition import ARCHITECTURE, ResourceConfig
from rp_api.platforms.systems import FILE_SCHEMES, HOP_SCHEMES, job_schemes, launch_methods, resource_managers
from rp_api.record import suggestion

_LEAST_MEMORY, _MOST_MEMORY = 1024, 64 * 1024**2
"""Plausible memory of a node in MB: 1 GB to 64 TB."""

_MOST_STORAGE = 1024**3
"""Plausible node-local storage in MB."""


def review(config: ResourceConfig) -> list[str]:
    """Return the implausible parts of a definition, one sentence each."""
    return [*_names(config), *_endpoints(config), *_amounts(config), *_devices(config), *_attributes(config)]


def _names(config: ResourceConfig) -> Iterator[str]:
    managers, methods = resource_managers(), launch_methods()
    if config.resource_manager not in managers:
        yield _unknown('resource_manager', config.resource_manager, managers)
    for name in config.launch_methods['order']:
        if name not in methods:
            yield _unknown('launch_methods.order', name, methods)
    for name in config.launch_methods.keys() - {'order', *config.launch_methods['order']}:
        yield f'launch_methods.{name} has options, but is not in launch_methods.order'
    for name in config.system_architecture.keys() - ARCHITECTURE.keys():
        yield _unknown('system_architecture', name, ARCHITECTURE.keys())


def _endpoints(config: ResourceConfig) -> Iterator[str]:
    schemes = {'job_manager_endpoint': job_schemes(), 'filesystem_endpoint': FILE_SCHEMES,
               'job_manager_hop': HOP_SCHEMES}
    for schema, access in config.schemas.items():
        for name, known in schemes.items():
            scheme, separator, _ = access[name].partition('://')
            if access[name] and not separator:
                yield f'schemas.{schema}.{name} is {access[name]!r}, which is not a URL'
            elif access[name] and scheme not in known:
                yield _unknown(f'schemas.{schema}.{name}', scheme, known)
    if not config.schemas and not config.job_manager_endpoint:
        yield 'there are no schemas and no job_manager_endpoint: the platform cannot be reached'


def _amounts(config: ResourceConfig) -> Iterator[str]:
    if config.mem_per_node and not _LEAST_MEMORY <= config.mem_per_node <= _MOST_MEMORY:
        yield f'mem_per_node is {config.mem_per_node} MB: is that in another unit?'
    if config.lfs_size_per_node > _MOST_STORAGE:
        yield f'lfs_size_per_node is {config.lfs_size_per_node} MB: is that in another unit?'
    if config.lfs_size_per_node and not config.lfs_path_per_node:
        yield 'lfs_size_per_node is given, but not lfs_path_per_node'


def _devices(config: ResourceConfig) -> Iterator[str]:
    architecture = config.system_architecture
    counts = {'cores': config.cores_per_node * architecture.get('smt', 1), 'gpus': config.gpus_per_node}
    for kind, count in counts.items():
        blocked = architecture.get(f'blocked_{kind}') or ()
        if count and any(index >= count for index in blocked):
            yield f'system_architecture.blocked_{kind} has {max(blocked)}, but a node has {count} {kind}, from 0'
        members = Counter(index for domain in config.numa_domain_map.values() for index in domain.get(kind, ()))
        if members and count and max(members) >= count:
            yield f'numa_domain_map has {kind} {max(members)}, but a node has {count} {kind}, from 0'
        twice = sorted(index for index, times in members.items() if times > 1)
        if twice:
            yield f'numa_domain_map has {kind} {twice[0]} twice'


def _attributes(config: ResourceConfig) -> Iterator[str]:
    known = PilotDescription().keys()
    for name in config.mandatory_args:
        if name not in known:
            yield _unknown('mandatory_args', name, known)
    for name in sorted(set(_placeholders(config.as_dict()))):
        if name not in known:
            yield _unknown('a placeholder %(pd...)s', name, known)


def _placeholders(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _placeholders(each)
    elif isinstance(value, str):
        yield from (name.lower() for name in re.findall(r'%\(pd\.(\w+)\)s', value))


def _unknown(where: str, name: str, known: Collection[str]) -> str:
    return f'{where} has {name!r}, which is not known{suggestion(name, known)}'
