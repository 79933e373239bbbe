"""How this project is checked, built and tried out: `nox -s NAME`, or `nox -l` for the list.

`tests` is everything that a change must pass: lint, types, then all tests on the interpreter that runs nox, then unit
and system tests on every other supported interpreter that is found. The other sessions are its parts. Arguments after
`--` go to what the session runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = '>=2024.4.15'
nox.options.default_venv_backend = 'virtualenv'
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ['tests']

ROOT = Path(__file__).parent
PACKAGES = [f'packages/{name}' for name in ('rp-profiling', 'rp-api', 'rp-client', 'rp-agent', 'rp-raptor')]
BUILD_TOOLS = ['setuptools', 'cython']
TEST_TOOLS = ['pytest', 'pytest-timeout', 'hypothesis', 'build']
LINT_TOOLS = ['ruff', 'cython-lint']
MINORS = range(10, 15)

# exits with an error where there are no C headers, without which the agent's extensions cannot be compiled
PROBE = 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_config_var("INCLUDEPY") + "/Python.h"))'


def candidates(minor: int) -> list[str]:
    """Paths of programs that may be Python 3.`minor`: on PATH, or installed by pyenv and not selected."""
    name = f'python3.{minor}'
    pyenv = Path(os.environ.get('PYENV_ROOT', Path.home() / '.pyenv'))
    on_path = shutil.which(name)
    return [*([on_path] if on_path else []), *map(str, sorted(pyenv.glob(f'versions/3.{minor}.*/bin/{name}')))]


def works(interpreter: str) -> bool:
    """Whether `interpreter` runs and can compile extensions; the programs that pyenv puts on PATH may do neither."""
    return subprocess.run([interpreter, '-c', PROBE], capture_output=True).returncode == 0


def other_interpreters() -> dict[str, str]:
    """Version and path of each supported interpreter that is found here, without the version that runs nox."""
    found = {}
    for minor in MINORS:
        usable = [] if minor == sys.version_info.minor else filter(works, candidates(minor))
        for path in usable:
            found[f'3.{minor}'] = path
            break
    return found


OTHERS = other_interpreters()


def install_tools(session: nox.Session, *tools: str) -> None:
    """Install development tools in the versions of constraints.txt."""
    session.install('--quiet', '--constraint', 'constraints.txt', *tools)


def install_editable(session: nox.Session, *tools: str) -> None:
    """Install all distributions such that they run from the source tree, and `tools`."""
    install_tools(session, *BUILD_TOOLS, *tools)
    editables = [argument for package in PACKAGES for argument in ('--editable', package)]
    session.install('--quiet', '--no-build-isolation', *editables)


def run_lint(session: nox.Session) -> None:
    session.run('ruff', 'check', '.')
    session.run('cython-lint', '--max-line-length', '120', 'packages/rp-agent/src')


def run_types(session: nox.Session) -> None:
    session.run('mypy')
    source = ROOT / 'packages/rp-agent/src'
    extensions = ['.'.join(path.relative_to(source).with_suffix('').parts) for path in sorted(source.rglob('*.pyx'))]
    session.run('stubtest', *extensions)


@nox.session
def tests(session: nox.Session) -> None:
    """Everything that a change must pass."""
    install_editable(session, *TEST_TOOLS, *LINT_TOOLS, 'mypy')
    run_lint(session)
    run_types(session)
    session.run('pytest', *session.posargs)
    for version in OTHERS:
        session.notify(f'smoke({version})')


@nox.session
@nox.parametrize('python', [nox.param(path, id=version) for version, path in OTHERS.items()])
def smoke(session: nox.Session) -> None:
    """Unit and system tests on one of the other interpreters."""
    install_editable(session, *TEST_TOOLS)
    session.run('pytest', '-m', 'not fault and not packaging', *session.posargs)


@nox.session
def unit(session: nox.Session) -> None:
    """The tests of each distribution."""
    install_editable(session, *TEST_TOOLS)
    session.run('pytest', 'packages', *session.posargs)


@nox.session
def system(session: nox.Session) -> None:
    """Tests that start real clients and agents."""
    install_editable(session, *TEST_TOOLS)
    session.run('pytest', 'tests/system', *session.posargs)


@nox.session
def fault(session: nox.Session) -> None:
    """Tests that kill processes, cut connections and fill disks."""
    install_editable(session, *TEST_TOOLS)
    session.run('pytest', '-m', 'fault', *session.posargs)


@nox.session
def packaging(session: nox.Session) -> None:
    """Build, inspect and install wheels and sdists, alone and beside other packages."""
    install_editable(session, *TEST_TOOLS)
    session.run('pytest', 'tests/packaging', *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """The style of the source."""
    install_tools(session, *LINT_TOOLS)
    run_lint(session)


@nox.session
def types(session: nox.Session) -> None:
    """Type hints."""
    install_editable(session, *TEST_TOOLS, 'mypy')
    run_types(session)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure sessions on this machine; figures and options of benchmarks/local.py go after `--`."""
    install_editable(session)
    session.run('python', 'benchmarks/local.py', *session.posargs)


@nox.session
def quickstart(session: nox.Session) -> None:
    """Install the system as its users do, and run an example that checks its own results."""
    session.install('--quiet', *(f'./{package}' for package in PACKAGES))
    session.run('python', 'examples/quickstart.py', *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build the sdist and the wheel of each distribution into dist/."""
    install_tools(session, 'build')
    shutil.rmtree(ROOT / 'dist', ignore_errors=True)
    for package in PACKAGES:
        session.run('python', '-m', 'build', '--outdir', 'dist', package)
