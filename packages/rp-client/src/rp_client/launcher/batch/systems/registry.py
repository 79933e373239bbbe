"""The batch system of a URL: a module of this package, or of another distribution (`rp_api.platforms.systems`)."""

from __future__ import annotations

from typing import cast
from urllib.parse import urlsplit

from rp_api.extensions import load
from rp_api.platforms.names import HOP_SCHEMES, HOPS
from rp_api.platforms.systems import submitter
from rp_client.launcher.batch.systems.base import BatchSystem


def is_known(url: str) -> bool:
    """Whether jobs can be submitted to a URL."""
    kind, _, hop = urlsplit(url).scheme.partition('+')
    return not hop if kind in HOP_SCHEMES else hop in HOPS and bool(submitter(kind))


def batch_system(url: str) -> BatchSystem:
    """The batch system of a URL such as `slurm+ssh://host/`; `KeyError` if it is of none."""
    kind = urlsplit(url).scheme.partition('+')[0]
    where = f'{__package__}.host:Host' if kind in HOP_SCHEMES else submitter(kind)
    if not where:
        raise KeyError(url)
    return cast('BatchSystem', load(where)())
