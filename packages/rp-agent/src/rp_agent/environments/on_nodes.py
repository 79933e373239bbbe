"""Named environments on the disks of nodes: copied after they are built, and activated there.

The copy saves metadata operations of the shared file system, and nothing else depends on it. A node without a copy uses
the environment where it was built, and the application gets a notice. The script of an environment looks for the copy
on the node that it runs on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from rp_agent import sandbox
from rp_agent.environments.environments import Done
from rp_agent.environments.published import Built, Files
from rp_agent.node_copies.copies import NodeCopies
from rp_agent.node_copies.distributor import Outcome
from rp_api.system import private

_PLAIN = re.compile(r'[A-Za-z0-9@%+=:,./_-]+')
"""A path that has the same meaning inside and outside of quotes."""

_SHOWN = 3
"""Number of nodes without a copy that a notice names."""


class OnNodes:
    """The environments of a pilot on the disks of its nodes.

    `notice` gets a sentence for the application about nodes without a copy.
    """

    def __init__(self, config: Mapping[str, Any], copies: NodeCopies, notice: Callable[[str], None]) -> None:
        self._sandbox = sandbox.of_pilot(config)
        self._copies = copies
        self._notice = notice

    def distribute(self, built: Built, done: Done) -> None:
        """Copy an environment to all nodes, then call `done()`."""
        files = Files.of(self._sandbox, built.name)
        # beside the environment, for later pilots; but the directories of others are not written to
        archive = f'{files.directory if built.spec["path"] else built.path}.tgz'
        try:
            self._copies.provide(built.identity[:16], built.path, archive, partial(self._copied, built, files, done),
                                 lambda reason, _: self._missing(built, reason, done))
        except OSError as error:
            self._missing(built, f'{archive}: {error.strerror}', done)

    def stop(self, reason: str) -> None:
        """Wait for the end of the tasks, which use the copies."""

    def close(self) -> None:
        """End all copying, and remove the copies on this host."""
        self._copies.close()

    def _copied(self, built: Built, files: Files, done: Done, outcome: Outcome) -> None:
        paths = {path for path in outcome.paths.values() if _PLAIN.fullmatch(path)}
        failures = outcome.failures | {node: f'{path} has characters that a shell replaces'
                                       for node, path in outcome.paths.items() if path not in paths}
        with open(files.script, encoding='utf-8', errors='surrogateescape') as file:
            script = file.read()
        private.write_file(files.script, os.fsencode(script_with_copies(script, built.path, sorted(paths))))
        if failures:
            reasons = [reason for _, reason in sorted(failures.items())]
            more = f' and {len(reasons) - _SHOWN} more' if len(reasons) > _SHOWN else ''
            self._missing(built, f'{"; ".join(reasons[:_SHOWN])}{more}', done)
        else:
            done()

    def _missing(self, built: Built, reason: str, done: Done) -> None:
        self._notice(f'the environment {built.name!r} is used from {built.path} on nodes without a copy: {reason}')
        done()


def script_with_copies(script: str, path: str, copies: Iterable[str]) -> str:
    """Return an activation script that activates the first of these copies that is on the node, else `path`.

    A copy is used only if it belongs to this user.
    """
    there = re.compile(rf'{re.escape(path)}(?![\w.-])')
    lines = ''
    for number, copy in enumerate(copies):
        lines += f'{"elif" if number else "if"} test -O {copy}; then\n{there.sub(copy, script) or ":"}\n'
    return f'{lines}else\n{script or ":"}\nfi\n' if lines else script
