"""The names that platform definitions may use, including those of installed extensions."""

from __future__ import annotations

from rp_api.extensions import installed
from rp_api.platforms import systems

FILE_SCHEMES = frozenset(('file', 'sftp', 'ssh', 'scp', 'gsisftp', 'gsissh'))
"""URL schemes of file systems."""

HOP_SCHEMES = ('fork', 'local', 'ssh', 'gsissh')
"""URL schemes of hosts without a batch system, and for interactive commands."""

HOPS = ('', 'ssh', 'gsissh')
"""Suffixes of a batch system's URL scheme, after a +."""


def resource_managers() -> set[str]:
    """Return the names of resource managers."""
    others = {system.resource_manager for system in systems.other_systems() if system.agent}
    return {*systems.RESOURCE_MANAGERS, *others, *installed('radical_pilot.resource_managers')}


def launch_methods() -> set[str]:
    """Return the names of launch methods."""
    return {*systems.LAUNCH_METHODS, *installed('radical_pilot.launch_methods')}


def job_schemes() -> set[str]:
    """Schemes of URLs of job managers."""
    kinds = {*systems.SCHEMES, *(system.scheme for system in systems.other_systems() if system.scheme)}
    return {*HOP_SCHEMES, *(f'{kind}+{hop}' if hop else kind for kind in kinds for hop in HOPS)}
