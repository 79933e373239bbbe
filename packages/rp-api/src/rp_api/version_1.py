"""Helper functions of RADICAL-Pilot 1 that applications use and that nothing else here needs."""

from __future__ import annotations

import resource
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rp_api.resources import Slot

_OLD, _NEW = 0, 1
"""Versions of slots."""

_STARTED = time.monotonic()


def tail(txt: str, maxlen: int = 1024) -> str:
    """Return the end of a text, with a first line that says so if it was shortened.

    Args:
        txt: The text; the result is empty if it is None.
        maxlen: The number of characters that are kept.
    """
    if not txt or len(txt) <= maxlen:
        return txt or ''
    return f'[... CONTENT SHORTENED ...]\n{txt[-maxlen:] if maxlen else ""}'


def get_rusage() -> str:
    """Return one line on this process: seconds since this module was imported, CPU seconds, and the largest memory."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (f'real {time.monotonic() - _STARTED:3f} sec | user {used.ru_utime:.3f} sec | '
            f'system {used.ru_stime:.3f} sec | mem {used.ru_maxrss:.2f} kB')


def create_tar(tgt: str, dnames: Iterable[str]) -> None:
    """Write a tar archive that contains empty directories.

    Args:
        tgt: The path of the archive.
        dnames: The paths of the directories in it.
    """
    with tarfile.open(tgt, 'w') as archive:
        for name in dnames:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, int(time.time())
            archive.addfile(entry)


def convert_slots_to_new(slots: Sequence[Mapping[str, Any]] | None, log: Any = None) -> list[Slot]:
    """Return slots as `Slot` objects, with the occupation of each device.

    Args:
        slots: Slots of version 0, dicts whose `cores` and `gpus` are lists of indices, or newer ones.
        log: A logger; its `debug` is called with the number of slots.

    Raises:
        AttributeTypeError: A value of a slot has another form; the message names it.
    """
    found = [Slot(slot) if isinstance(slot, Slot) else Slot({**slot, 'version': _NEW}) for slot in slots or ()]
    for slot in found:
        slot.verify()
    _tell(log, found)
    return found


def convert_slots_to_old(slots: Sequence[Mapping[str, Any]] | None, log: Any = None) -> list[dict[str, Any]]:
    """Return slots in the form of version 0: dicts whose `cores` and `gpus` are lists of indices.

    The occupation of devices is lost.

    Args:
        slots: Slots of any version.
        log: A logger; its `debug` is called with the number of slots.

    Raises:
        AttributeTypeError: A value of a slot has another form; the message names it.
    """
    found = []
    for slot in convert_slots_to_new(slots):
        indices = {kind: [device['index'] for device in slot[kind]] for kind in ('cores', 'gpus')}
        found.append({**slot.as_dict(), **indices, 'version': _OLD})
    _tell(log, found)
    return found


def _tell(log: Any, slots: Sequence[object]) -> None:
    if log is not None:
        log.debug(f'{len(slots)} slots converted')
