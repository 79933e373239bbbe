"""The walk-through that adds a scheduling policy: its files, just as they stand in the page, are installed and used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = re.compile(r'^```\w+ (\S+)\n(.*?)^```', re.MULTILINE | re.DOTALL)
LINK = re.compile(r'\]\(([^)#]+)\)')
PAGES = ['scheduler.md', 'add-a-scheduling-policy.md']


@pytest.fixture
def walk_through(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files of the page, their package installed below it."""
    for name, text in FILE.findall((ROOT / 'docs/add-a-scheduling-policy.md').read_text()):
        path = base / name.replace('config/', 'home/.radical/pilot/configs/')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run('-m', 'pip', 'install', '--quiet', '--no-index', '--no-deps', '--no-build-isolation', '--target', 'site',
        './spread', base=base)
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join(filter(None, [str(base / 'site'), os.environ.get('PYTHONPATH')])))
    monkeypatch.setenv('HOME', str(base / 'home'))
    return base


def run(*arguments: str, base: Path) -> str:
    """What a program prints, run by this interpreter; it must end well."""
    done = subprocess.run([sys.executable, *arguments], cwd=base, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_policy_places_tasks(walk_through: Path) -> None:
    assert '1 passed' in run('-m', 'pytest', '-q', '-p', 'no:cacheprovider', 'spread/test_spread.py', base=walk_through)


def test_a_session_uses_the_policy(walk_through: Path) -> None:
    assert run('use_it.py', base=walk_through) == "[0, 1, 2] {'DONE'}\n"


@pytest.mark.parametrize('page', PAGES)
def test_links_and_names_of_files_lead_somewhere(page: str) -> None:
    text = (ROOT / 'docs' / page).read_text()
    links = [link for link in LINK.findall(text) if not link.startswith('http')]
    assert [link for link in links if not (ROOT / 'docs' / link).exists()] == []
    scheduler = ROOT / 'packages/rp-agent/src/rp_agent/scheduler'
    names = set(re.findall(r'`(?:rp_agent/scheduler/)?(\w+\.pyx?)`', text))
    assert [name for name in names if not (scheduler / name).exists()] == []
    assert names
