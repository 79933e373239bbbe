"""The environment variables through which the agent configures a worker's manager."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.raptor_link import GPUS, PART, SLOTS, beside, job_file, link_file, master_file, run_file
from rp_api.system.gpus import NO_GPUS, VISIBLE_GPUS
from rp_api.transport.access import Access
from rp_raptor.wire.parts import Part


@dataclass(frozen=True)
class WorkerEnvironment:
    """A worker's configuration: uid, the path of its master's file, and the ranks of this process.

    `devices` has the GPUs of each of these ranks, `cpus` the CPUs to which each binds itself; ranks without any stay
    unbound. `runtime` is a directory for sockets that is removed with the agent's own, however the worker ends.
    `run_path` and `job_path` are the files of an MPI job over several parts, else empty.
    """

    uid: str
    master: str
    master_path: str
    part: Part
    cores_per_rank: int
    devices: list[list[str]]
    device_variable: str
    cpus: list[list[int]] = field(default_factory=list)
    runtime: str | None = None
    run_path: str = ''
    job_path: str = ''

    @property
    def ranks(self) -> int:
        """The number of ranks of this manager."""
        return len(self.part.numbers)

    @classmethod
    def of(cls, master: str, environ: Mapping[str, str]) -> WorkerEnvironment:
        """Read the configuration from environment variables; CoordinationError if they are not those of a task."""
        try:
            task, sandbox = environ['RP_TASK_ID'], environ['RP_PILOT_SANDBOX']
        except KeyError as error:
            raise CoordinationError(f'a worker is a task of a pilot: {error.args[0]} is not set') from error
        ranks = _number(environ, 'RP_RANKS')
        uid, part, paths = _part(environ, task, ranks)
        slots = _slots(environ, ranks)
        devices = [[str(gpu) for gpu in slot.get('gpus', ())] for slot in slots]
        variable = environ.get(GPUS) or next(iter(VISIBLE_GPUS.values()))
        return cls(uid, master, master_file(sandbox, master), part, _number(environ, 'RP_CORES_PER_RANK'),
                   devices if any(devices) else [], variable if any(devices) else '',
                   [[int(cpu) for cpu in slot.get('cpus', ())] for slot in slots] or [[] for _ in range(ranks)],
                   _runtime(link_file(sandbox, environ.get('RP_PARTITION_ID', ''))), *paths)

    def variables(self, rank: int) -> dict[str, str]:
        """Return the variables that restrict a rank of the part to its GPUs."""
        if not self.devices:   # the manager itself sees none
            return {}
        return {**NO_GPUS, **({self.device_variable: ','.join(self.devices[rank])} if self.devices[rank] else {})}


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


def _part(environ: Mapping[str, str], task: str, ranks: int) -> tuple[str, Part, tuple[str, ...]]:
    """Return the uid of the worker, the part that this process has, and the files of an MPI job over all parts."""
    if not environ.get(PART):
        return task, Part.whole(ranks), ()
    try:
        told = json.loads(environ[PART])
        uid, part = str(told['worker']), Part.told(told, ranks)
        return uid, part, (run_file(told['files'], uid, part.number), job_file(told['files'], uid))
    except (ValueError, TypeError, KeyError) as error:
        raise CoordinationError(f'{PART} is not a part of a worker: {error!r}') from error


def _slots(environ: Mapping[str, str], ranks: int) -> list[dict[str, Any]]:
    """Return the slots of the ranks; empty if they are unknown."""
    try:
        slots = json.loads(environ.get(SLOTS) or '[]')
        if not all(isinstance(slot, dict) for slot in slots):
            raise TypeError(slots)
    except (ValueError, TypeError) as error:
        raise CoordinationError(f'{SLOTS} is not a list of slots: {error!r}') from error
    return slots if len(slots) == ranks else []
