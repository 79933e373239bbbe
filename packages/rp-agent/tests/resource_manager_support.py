"""A made-up host for tests of resource managers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.system import System
from rp_agent.resource_manager.systems import find
from rp_api.errors import PlatformError


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Make files below a root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


class MadeUp(System):
    """A host with this environment, these files, answers of programs, and names; other names are other hosts."""

    def __init__(self, environ: Mapping[str, str], files: Mapping[str, str] | None = None,
                 answers: Mapping[str, str] | None = None, here: Sequence[str] = (),
                 sick: Mapping[str, str] | None = None) -> None:
        super().__init__(environ)
        self._files = files or {}
        self._answers = answers or {}
        self._here = here
        self._sick = sick or {}

    def read(self, path: str) -> str:
        if path not in self._files:
            raise PlatformError(f'{path} cannot be read: No such file or directory')
        return self._files[path]

    def newest(self, pattern: str) -> str | None:
        return next((path for path in self._files if fnmatch(path, pattern)), None)

    def run(self, *command: str) -> str:
        said = ' '.join(command)
        if said not in self._answers:
            raise PlatformError(f'`{said}` cannot be run: No such file or directory')
        return self._answers[said]

    def is_here(self, name: str) -> bool:
        return name in self._here

    def sick(self, names: Sequence[str]) -> dict[str, str]:
        return {name: reason for name, reason in self._sick.items() if name in names}


def allocate(name: str, environ: Mapping[str, str], platform: Mapping[str, Any] | None = None, *, nodes: int = 0,
             cores: int = 0, gpus: int = 0, backup_nodes: int = 0, **host: Any) -> Allocation:
    """What a pilot gets of a resource manager on a made-up host."""
    definition = {'resource_manager': name, **(platform or {})}
    return find.allocate(Request(nodes, cores, gpus, backup_nodes), definition, MadeUp(environ, **host))
