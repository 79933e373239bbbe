"""The walk-through that adds a launch method: its files, just as they stand in the page, are installed and used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rp_agent.launch_method import find

ROOT = Path(__file__).parents[2]
FILE = re.compile(r'^```\w+ (\S+)\n(.*?)^```', re.MULTILINE | re.DOTALL)
LINK = re.compile(r'\]\(([^)#]+)\)')
PAGES = ['launch-methods.md', 'add-a-launch-method.md']


@pytest.fixture
def walk_through(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files of the page, their package installed below it, and the launcher on PATH."""
    for name, text in FILE.findall((ROOT / 'docs/add-a-launch-method.md').read_text()):
        path = base / name.replace('config/', 'home/.radical/pilot/configs/')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (base / 'bin/herd').chmod(0o755)
    run('-m', 'pip', 'install', '--quiet', '--no-index', '--no-deps', '--no-build-isolation', '--target', 'site',
        './herd_method', base=base)
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join(filter(None, [str(base / 'site'), os.environ.get('PYTHONPATH')])))
    monkeypatch.setenv('PATH', f'{base}/bin:{os.environ["PATH"]}')
    monkeypatch.setenv('HOME', str(base / 'home'))
    return base


def run(*arguments: str, base: Path) -> str:
    """What a program prints, run by this interpreter; it must end well."""
    done = subprocess.run([sys.executable, *arguments], cwd=base, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_method_is_found_and_composes_commands(walk_through: Path) -> None:
    assert '2 passed' in run('-m', 'pytest', '-q', '-p', 'no:cacheprovider', 'herd_method/test_herd.py',
                             base=walk_through)


def test_a_session_uses_the_method(walk_through: Path) -> None:
    assert run('use_it.py', base=walk_through) == "DONE ['', 'rank 0', 'rank 1', 'rank 2'] HERD\n"


def test_the_table_has_all_methods() -> None:
    text = (ROOT / 'docs/launch-methods.md').read_text()
    rows = re.findall(r'^\| ([A-Z_, ]+) \| .*(?:composed|run)', text, re.MULTILINE)
    assert sorted(name for row in rows for name in row.split(', ')) == sorted(find.NAMES)


@pytest.mark.parametrize('page', PAGES)
def test_links_and_names_of_files_lead_somewhere(page: str) -> None:
    text = (ROOT / 'docs' / page).read_text()
    links = [link for link in LINK.findall(text) if not link.startswith('http')]
    assert [link for link in links if not (ROOT / 'docs' / link).exists()] == []
    room = ROOT / 'packages/rp-agent/src/rp_agent/launch_method'
    names = set(re.findall(r'`(?:rp_agent/launch_method/)?(\w+\.py)`', text)) - {'use_it.py'}
    assert [name for name in names if not (room / name).exists()] == []
    assert names
