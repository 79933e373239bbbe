"""The staging protocols of this project, one class for each action."""

from __future__ import annotations

import os
from collections.abc import Callable

from rp_api.constants import DOWNLOAD
from rp_api.errors import DescriptionError
from rp_api.staging import files
from rp_api.staging.protocol import Protocol, schemes, transport


class Copy(Protocol):
    """Copies files on the platform; a source with wildcards stands for all matching files."""

    def operation(self) -> Callable[[str, str], None]:
        """Return the operation that stages one file or directory."""
        return files.copy

    def stage(self, source: str, target: str, parents: bool) -> str:
        found = files.matches(source)
        if found is None:
            return files.operate(self.operation(), source, target, parents)
        for match in found:
            files.operate(self.operation(), match, os.path.join(target, ''), parents)
        return target


class Link(Copy):
    """Creates links on the platform."""

    def operation(self) -> Callable[[str, str], None]:
        return files.link


class Move(Copy):
    """Moves files on the platform."""

    def operation(self) -> Callable[[str, str], None]:
        return files.move


class Transfer(Copy):
    """Copies files between client and platform; both paths are local when `stage` is called."""

    on_client = True


class Tarball(Transfer):
    """Copies files between client and platform, with the input of a task in one archive."""

    packed = True


class Download(Copy):
    """Fetches files of other hosts to the platform; `file://` URLs are copied."""

    def check(self, source: str, target: str) -> None:
        if source.partition('://')[0].casefold() != 'file' and transport(source) is None:
            raise DescriptionError(f'action {DOWNLOAD} needs a URL with one of the schemes file, '
                                   f'{", ".join(schemes())}, not {source!r}')
