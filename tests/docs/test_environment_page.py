"""The page about environments: its application runs with the project that stands there, and its links are right."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from pages import DOCS, FILE, dead_links, run

PAGE = 'guides/environments.md'


def package(directory: Path) -> None:
    """Make a stand-in for the package that the project depends on, as there may be no package index."""
    directory.mkdir()
    info = 'tabulate-0.9.0.dist-info'
    files = {'tabulate.py': 'def tabulate(rows):\n    return "\\n".join(" ".join(map(str, row)) for row in rows)\n',
             f'{info}/METADATA': 'Metadata-Version: 2.1\nName: tabulate\nVersion: 0.9.0\n',
             f'{info}/WHEEL': 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n'}
    files[f'{info}/RECORD'] = ''.join(f'{path},,\n' for path in [*files, f'{info}/RECORD'])
    with zipfile.ZipFile(directory / 'tabulate-0.9.0-py3-none-any.whl', 'w') as archive:
        for path, text in files.items():
            archive.writestr(path, text)


@pytest.mark.long
def test_the_application_runs(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = dict(FILE.findall((DOCS / PAGE).read_text()))
    assert set(files) == {'pyproject.toml', 'application.py'}
    for name, text in files.items():
        (base / name).write_text(text)
    package(base / 'index')
    monkeypatch.setenv('HOME', str(base))   # local pilots have their sandbox there
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.setenv('PIP_FIND_LINKS', str(base / 'index'))
    printed = run('application.py', base=base)
    assert 'no need to wait' in printed
    assert 'DONE 1 2\n3 4' in printed


def test_links_lead_somewhere() -> None:
    assert dead_links(PAGE) == []
