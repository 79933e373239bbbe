"""What the tests of documents share: a page's files, just as they stand there, installed and run; where links lead."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / 'docs'
FILE = re.compile(r'^```\w+ (\S+)\n(.*?)^```', re.MULTILINE | re.DOTALL)
_LINK = re.compile(r'\]\(([^)#]+)\)')


def install(page: str, package: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the files of a page below `base`, install the package that they make, and set the environment for it.

    Files below config/ are the user's configuration, those below bin/ are programs on PATH.
    """
    for name, text in FILE.findall((DOCS / page).read_text()):
        path = base / name.replace('config/', 'home/.radical/pilot/configs/')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.startswith('bin/') else 0o644)
    run('-m', 'pip', 'install', '--quiet', '--no-index', '--no-deps', '--no-build-isolation', '--target', 'site',
        f'./{package}', base=base)
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join(filter(None, [str(base / 'site'), os.environ.get('PYTHONPATH')])))
    monkeypatch.setenv('HOME', str(base / 'home'))
    monkeypatch.setenv('PATH', f'{base}/bin:{os.environ["PATH"]}')


def run(*arguments: str, base: Path) -> str:
    """What a program prints, run by this interpreter; it must end well."""
    done = subprocess.run([sys.executable, *arguments], cwd=base, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dead_links(page: str) -> list[str]:
    """The links of a page, other than those to elsewhere, that lead nowhere."""
    links = _LINK.findall((DOCS / page).read_text())
    return [link for link in links if not link.startswith('http') and not ((DOCS / page).parent / link).exists()]


def missing_sources(page: str, room: str) -> list[str]:
    """The sources that a page names which are not in that room of rp_agent; it has to name some."""
    files = re.findall(rf'`(?:rp_agent/{room}/)?((?!rp_)(?:\w+/)*\w+\.pyx?)`', (DOCS / page).read_text())
    named = set(files)
    assert named
    return [name for name in named if not (ROOT / 'packages/rp-agent/src/rp_agent' / room / name).exists()]
