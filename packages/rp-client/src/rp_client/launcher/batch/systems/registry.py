"""The registry of batch systems: finds the built-in one, or an extension, by the scheme of a URL."""

from __future__ import annotations

from typing import cast
from urllib.parse import urlsplit

from rp_api.extensions import load
from rp_api.platforms.systems import HOP_SCHEMES, HOPS, submitter
from rp_client.launcher.batch.systems.base import BatchSystem


def is_known(url: str) -> bool:
    """Return whether jobs can be submitted to a URL."""
    kind, _, hop = urlsplit(url).scheme.partition('+')
    return not hop if kind in HOP_SCHEMES else hop in HOPS and bool(submitter(kind))


def batch_system(url: str) -> BatchSystem:
    """Return the batch system of a URL such as `slurm+ssh://host/`; raise `KeyError` if there is none."""
    kind = urlsplit(url).scheme.partition('+')[0]
    where = f'{__package__}.host:Host' if kind in HOP_SCHEMES else submitter(kind)
    if not where:
        raise KeyError(url)
    return cast('BatchSystem', load(where)())
