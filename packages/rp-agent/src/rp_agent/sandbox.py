"""The sandbox of a pilot: its paths, the helper programs in it, and packing and removing it at the end."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rp_agent.logs import LOG
from rp_api.logger import logger
from rp_api.system import agent_process, private
from rp_api.system.host import python_program
from rp_profiling.write.shell import gtod_script, task_event_script

if TYPE_CHECKING:   # most processes of an agent never need it
    from pathlib import Path


def enter(config: Mapping[str, Any]) -> None:
    """Change to the sandbox of an agent; raise `OwnershipError` if it is not ours or others can write to it.

    The directory that was checked stays the current one even if its path is replaced.
    """
    descriptor = private.open_directory(config['pilot_sandbox'])
    try:
        os.fchdir(descriptor)
    finally:
        os.close(descriptor)


def of_pilot(config: Mapping[str, Any]) -> str:
    """Return the pilot's sandbox as tasks see it: partitions share it, and each partition's agent has one inside."""
    path: str = config['whole']['sandbox'] if 'whole' in config else config['pilot_sandbox']
    return path


def of_other_pilot(config: Mapping[str, Any], pilot: str) -> str:
    """Return the sandbox of the pilot, or partition of one, with that uid; empty if it is that of `config`.

    The uid of a partition is that of its pilot and a number.
    """
    whole = os.path.join(config['session_sandbox'], pilot)
    if pilot and not os.path.isdir(whole):
        whole = whole.rpartition('.')[0]
    return '' if not pilot or os.path.realpath(whole) == os.path.realpath(of_pilot(config)) else whole


def helpers(pilot_sandbox: str) -> tuple[str, str]:
    """Return the paths of the programs `$RP_GTOD` (clock) and `$RP_PROF` (events), which tasks may call."""
    return os.path.join(pilot_sandbox, 'gtod'), os.path.join(pilot_sandbox, 'prof')


def control(pilot_sandbox: str) -> str:
    """Return the path of the program `$RP_CTRL`, by which tasks call the agent."""
    return os.path.join(pilot_sandbox, 'ctrl')


def write_helpers(pilot_sandbox: str) -> tuple[str, str]:
    """Write these programs and return the paths of the first two."""
    paths = helpers(pilot_sandbox)
    texts = gtod_script(), task_event_script(), _control_script()
    for path, text in zip((*paths, control(pilot_sandbox)), texts, strict=True):
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        os.chmod(path, 0o755)
    return paths


def _control_script() -> str:
    """Return the script of `$RP_CTRL`, which runs in the environment of the agent, whatever that of the task is."""
    own = os.environ.get('PYTHONPATH')
    path = f'PYTHONPATH={shlex.quote(own)}; export PYTHONPATH' if own else 'unset PYTHONPATH'
    return f'#!/bin/sh\nunset PYTHONHOME; {path}\nexec {shlex.join(python_program("rp_api.endpoint.programs"))} "$@"\n'


def of_task(config: Mapping[str, Any], uid: str, description: Mapping[str, Any]) -> str:
    """Return the sandbox of a task."""
    base = of_pilot(config)
    if 'sandbox' not in description or not description['sandbox']:
        return f'{base}/{uid}'
    return os.path.normpath(os.path.join(base, description['sandbox']))


def updates(config: Mapping[str, Any]) -> str:
    """Return the path of the file with the results that the agent could not deliver."""
    return f'{config["pilot_sandbox"]}/{config["agent_uid"]}.updates'


def wrap_up(config: Mapping[str, Any]) -> None:
    """Pack `output_staging` and delete the sandbox (`cleanup`), as the description of the pilot asks for.

    The configuration file, which holds keys, is always deleted. Results that could not be delivered always stay.
    """
    from pathlib import Path

    pilot_sandbox = Path(config['pilot_sandbox'])
    try:
        (pilot_sandbox / f'{config["agent_uid"]}.cfg').unlink(missing_ok=True)
        if config['output_staging']:
            _pack(pilot_sandbox, config['output_staging'])
    except OSError as error:
        logger(LOG).error('finishing the sandbox failed: %s', error)
    if config['cleanup']:
        _clear(pilot_sandbox, keep=(updates(config), agent_process.path_in(pilot_sandbox)))


def remove(config: Mapping[str, Any]) -> None:
    """Remove what `wrap_up` has left, after all results were delivered."""
    if config['cleanup']:
        with suppress(OSError):   # agents in batch jobs have no such file
            os.unlink(agent_process.path_in(config['pilot_sandbox']))
        with suppress(OSError):   # it does not exist or is not empty
            os.rmdir(config['pilot_sandbox'])


def _clear(directory: Path, keep: tuple[str, ...]) -> None:
    """Delete a directory, except for these files; if none of them exists, the directory itself."""
    from rp_api.staging.trees import remove as remove_tree  # most pilots never need it

    kept = [path for path in keep if os.path.exists(path)]
    paths = [path for path in directory.iterdir() if str(path) not in kept] if kept else [directory]
    for path in paths:
        try:
            remove_tree(str(path))
        except FileNotFoundError:   # a task has removed it
            continue
        except OSError as error:
            logger(LOG).error('%s cannot be removed: %s: %s', path, error.filename, error.strerror)


def _pack(pilot_sandbox: Path, names: list[str]) -> None:
    import tarfile  # slow to load, and most pilots do not need it

    from rp_api.staging.files import replacing
    from rp_api.staging.tarball import add

    with (replacing(str(pilot_sandbox / 'staging_output.tgz')) as temporary,
          tarfile.open(temporary, 'w:gz') as archive):
        for name in names:
            try:
                add(archive, str(pilot_sandbox / name), name)
            except OSError as error:   # pack the others
                logger(LOG).error('output staging of %s failed: %s', name, error)
