"""The environment variables through which the agent configures a worker's manager."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from rp_api.errors import CoordinationError
from rp_api.raptor_link import SLOTS, Access, beside, link_file, master_file

_GPU_VARIABLES = ('CUDA_VISIBLE_DEVICES', 'ROCR_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES', 'ZE_AFFINITY_MASK')


@dataclass(frozen=True)
class WorkerEnvironment:
    """A worker's configuration: uid, ranks, and the path of its master's file. `devices` has the GPUs of each rank.

    `runtime` is a directory for sockets that is removed with the agent's own, however the worker ends.
    """

    uid: str
    master: str
    master_path: str
    ranks: int
    cores_per_rank: int
    devices: list[list[str]]
    device_variable: str
    runtime: str | None = None

    @classmethod
    def of(cls, master: str, environ: Mapping[str, str]) -> WorkerEnvironment:
        """Read the configuration from environment variables; CoordinationError if they are not those of a task."""
        try:
            uid, sandbox = environ['RP_TASK_ID'], environ['RP_PILOT_SANDBOX']
        except KeyError as error:
            raise CoordinationError(f'a worker is a task of a pilot: {error.args[0]} is not set') from error
        ranks = _number(environ, 'RP_RANKS')
        devices = _devices(environ, ranks)
        variable = next((name for name in _GPU_VARIABLES if environ.get(name)), _GPU_VARIABLES[0])
        return cls(uid, master, master_file(sandbox, master), ranks, _number(environ, 'RP_CORES_PER_RANK'), devices,
                   variable if devices else '', _runtime(link_file(sandbox, environ.get('RP_PARTITION_ID', ''))))

    def variables(self, rank: int) -> dict[str, str]:
        """Return the variables that restrict a rank to its GPUs."""
        return {self.device_variable: ','.join(self.devices[rank])} if self.devices else {}


def _runtime(link: str) -> str | None:
    """Return the directory of the agent's socket; None if it uses the network, or there is no agent."""
    try:
        return beside(Access.load(link).address)
    except CoordinationError:
        return None


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, '1')
    if not text.isdigit() or not int(text):
        raise CoordinationError(f'{name} is {text!r}; it must be a whole number of at least 1')
    return int(text)


def _devices(environ: Mapping[str, str], ranks: int) -> list[list[str]]:
    """Return the GPUs of each rank; empty if there are none."""
    try:
        slots = json.loads(environ.get(SLOTS) or '[]')
        found = [[str(gpu) for gpu in slot['gpus']] for slot in slots]
    except (ValueError, TypeError, KeyError) as error:
        raise CoordinationError(f'{SLOTS} is not a list of slots: {error!r}') from error
    return found if len(found) == ranks and any(found) else []
