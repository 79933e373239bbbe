"""The files of a pilot that are not a task's: helpers that tasks call, and what is made of the sandbox at the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rp_agent.logs import LOG
from rp_api.logger import logger
from rp_api.system import agent_process, private
from rp_profiling.write.shell import gtod_script, task_event_script

if TYPE_CHECKING:   # most processes of an agent never need it
    from pathlib import Path



def enter(config: Mapping[str, Any]) -> None:
    """Have the directory of an agent as the current one; `OwnershipError` if it is not ours, or others can write to it.

    It stays the one that was checked if another one gets its path.
    """
    descriptor = private.open_directory(config['pilot_sandbox'])
    try:
        os.fchdir(descriptor)
    finally:
        os.close(descriptor)


def of_pilot(config: Mapping[str, Any]) -> str:
    """The directory that tasks know as their pilot's; partitions share it, each agent has its own one in there."""
    path: str = config['whole']['sandbox'] if 'whole' in config else config['pilot_sandbox']
    return path


def helpers(pilot_sandbox: str) -> tuple[str, str]:
    """The paths of the programs that tasks find as `$RP_GTOD` (clock) and `$RP_PROF` (events)."""
    return os.path.join(pilot_sandbox, 'gtod'), os.path.join(pilot_sandbox, 'prof')


def write_helpers(pilot_sandbox: str) -> tuple[str, str]:
    """Write these programs; gives their paths."""
    paths = helpers(pilot_sandbox)
    for path, text in zip(paths, (gtod_script(), task_event_script()), strict=True):
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)
        os.chmod(path, 0o755)
    return paths


def of_task(config: Mapping[str, Any], uid: str, description: Mapping[str, Any]) -> str:
    """The directory of a task."""
    base = of_pilot(config)
    sandbox = description.get('sandbox')
    return os.path.normpath(os.path.join(base, sandbox)) if sandbox else f'{base}/{uid}'


def updates(config: Mapping[str, Any]) -> str:
    """The path of the file with the results that the agent could not deliver."""
    return f'{config["pilot_sandbox"]}/{config["agent_uid"]}.updates'


def wrap_up(config: Mapping[str, Any]) -> None:
    """Do at the end of a pilot what its description asks for: pack `output_staging`, or delete everything (`cleanup`).

    The configuration holds keys and goes in any case. Results that could not be delivered stay in any case.
    """
    from pathlib import Path

    pilot_sandbox = Path(config['pilot_sandbox'])
    try:
        (pilot_sandbox / f'{config["agent_uid"]}.cfg').unlink(missing_ok=True)
        if config['output_staging']:
            _pack(pilot_sandbox, config['output_staging'])
    except OSError as error:
        logger(LOG).error('the sandbox cannot be wrapped up: %s', error)
    if config['cleanup']:
        _clear(pilot_sandbox, keep=(updates(config), agent_process.path_in(pilot_sandbox)))


def remove(config: Mapping[str, Any]) -> None:
    """After all results were delivered: remove what `wrap_up` may have had to leave."""
    if config['cleanup']:
        with suppress(OSError):   # it was started by a job
            os.unlink(agent_process.path_in(config['pilot_sandbox']))
        with suppress(OSError):   # it is not there, or there is something in it
            os.rmdir(config['pilot_sandbox'])


def _clear(directory: Path, keep: tuple[str, ...]) -> None:
    """Delete a directory; if one of these files is in it, everything else in it."""
    from rp_api.staging.trees import remove as remove_tree  # most pilots never need it

    kept = [path for path in keep if os.path.exists(path)]
    paths = [path for path in directory.iterdir() if str(path) not in kept] if kept else [directory]
    for path in paths:
        try:
            remove_tree(str(path))
        except FileNotFoundError:   # a task has done that
            continue
        except OSError as error:
            logger(LOG).error('%s cannot be removed: %s: %s', path, error.filename, error.strerror)


def _pack(pilot_sandbox: Path, names: list[str]) -> None:
    import tarfile  # it takes long to load, and most pilots do not need it

    from rp_api.staging.files import replacing
    from rp_api.staging.tarball import add

    with (replacing(str(pilot_sandbox / 'staging_output.tgz')) as temporary,
          tarfile.open(temporary, 'w:gz') as archive):
        for name in names:
            try:
                add(archive, str(pilot_sandbox / name), name)
            except OSError as error:   # the others are wanted all the same
                logger(LOG).error('output staging of %s failed: %s', name, error)
