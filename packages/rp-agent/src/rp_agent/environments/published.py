"""Files of a named environment in the pilot's sandbox, and the record of an environment that was built.

`env/rp_named_env.<name>.sh` activates the environment: the scripts of tasks source it. `.env` lists the variables of
the active environment, `.log` has the output of the build, and `.json` is the record. The script is written last, so
an environment with a script exists.
"""

from __future__ import annotations

import glob
import json
import os
from typing import Any, NamedTuple

from rp_api.description.environment import EnvSpec
from rp_api.system import private

UNREADABLE = (OSError, ValueError, TypeError)
"""The errors of reading a record."""


class Files(NamedTuple):
    """The paths of the files of one environment."""

    script: str
    variables: str
    log: str
    record: str
    directory: str
    """The directory of the environment, or a link to it."""

    @classmethod
    def of(cls, pilot_sandbox: str, name: str) -> Files:
        """Return the paths for the environment `name`."""
        base = os.path.join(pilot_sandbox, 'env', f'rp_named_env.{name}')
        return cls(f'{base}.sh', f'{base}.env', f'{base}.log', f'{base}.json', base)

    @staticmethod
    def records(pilot_sandbox: str) -> list[str]:
        """Return the paths of the records of all environments that were built."""
        return sorted(glob.glob(os.path.join(glob.escape(pilot_sandbox), 'env', 'rp_named_env.*.json')))


class Built(NamedTuple):
    """An environment that exists: `path` is its directory, empty for types that have none."""

    name: str
    spec: EnvSpec
    identity: str
    path: str

    def write(self, files: Files) -> None:
        """Write the record."""
        private.write_file(files.record, json.dumps(self._asdict(), indent=1).encode())

    @classmethod
    def read(cls, record: str) -> Built:
        """Return the record in a file; raise one of `UNREADABLE` if there is none."""
        with open(record, 'rb') as file:
            data: dict[str, Any] = json.load(file)
        return cls(**data)
