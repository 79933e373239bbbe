"""What the documents say about the tree is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from envs import NEEDS, ROOT

from rp_api.reasons.kinds import KINDS

DOCUMENTS = ['README.md', 'CONTRIBUTING.md', *(f'packages/{name}/README.md' for name in NEEDS),
             *sorted(str(path.relative_to(ROOT)) for folder in ('docs', 'benchmarks')
                     for path in ROOT.glob(f'{folder}/**/*.md'))]


def test_first_example_is_the_one_in_the_first_steps() -> None:
    block, *_ = re.findall(r'```python\n(.*?)```', (ROOT / 'docs/start/first-steps.md').read_text(), re.DOTALL)
    example = (ROOT / 'examples/first_tasks.py').read_text()
    assert example.partition('\n\n')[2] == block


@pytest.mark.parametrize('document', DOCUMENTS)
def test_python_in_documents_compiles(document: str) -> None:
    for block in re.findall(r'```python\n(.*?)```', (ROOT / document).read_text(), re.DOTALL):
        assert compile(block, document, 'exec')


@pytest.mark.parametrize('document', DOCUMENTS)
def test_links_in_documents_lead_somewhere(document: str) -> None:
    dead = []
    for link, place, section in re.findall(r'\]\((([^)\s#]*)(?:#([^)\s]+))?)\)', (ROOT / document).read_text()):
        target = (ROOT / document).parent / place if place else ROOT / document
        if not place.startswith('http') and not (target.exists() and (not section or section in sections(target))):
            dead.append(link)
    assert dead == []


def test_the_reference_of_reasons_is_that_of_the_code() -> None:
    rows = re.findall(r'^- `([a-z_.]+)`: (.*)$', (ROOT / 'docs/reference/reasons.md').read_text(), re.MULTILINE)
    assert rows == [(kind, meaning) for kind, (meaning, _) in KINDS.items()]


def sections(page: Path) -> set[str]:
    """What sections of a page are called in links: their titles in small letters, with hyphens for spaces."""
    titles = re.findall(r'^#+ (.*)$', page.read_text(), re.MULTILINE)
    return {re.sub(r'[^\w -]', '', title.lower()).replace(' ', '-') for title in titles}


@pytest.mark.parametrize('name', NEEDS)
def test_copies_of_the_licence_are_equal(name: str) -> None:
    assert (ROOT / 'packages' / name / 'LICENSE').read_text() == (ROOT / 'LICENSE').read_text()


def test_extensions_of_all_distributions_are_built_alike() -> None:
    builds = {path.read_text() for path in ROOT.glob('packages/*/setup.py')}
    assert len(builds) == 1


def test_sessions_that_documents_name_exist() -> None:
    noxfile = (ROOT / 'noxfile.py').read_text()
    sessions = set(re.findall(r'^@nox\.session.*\n(?:@.*\n)?def (\w+)', noxfile, re.MULTILINE))
    named = {name for document in DOCUMENTS for name in re.findall(r'nox -s (\w+)', (ROOT / document).read_text())}
    assert {'tests', 'quickstart'} <= named <= sessions
