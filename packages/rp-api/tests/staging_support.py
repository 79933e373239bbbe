"""What tests of protocols for other hosts share: a directive that is performed here, and the files of a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from rp_api.errors import StagingError
from rp_api.staging import expand, perform


def stage(source: str | Path, target: str | Path, **values: object) -> str:
    [directive] = expand({'source': str(source), 'target': str(target)} | values)
    return perform(directive, str(source), str(target))


def fails(source: str | Path, target: str | Path, **values: object) -> StagingError:
    with pytest.raises(StagingError) as caught:
        stage(source, target, **values)
    return caught.value


def content(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob('*') if path.is_file()}
