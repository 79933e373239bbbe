"""What is in the wheels and the sdists, and what works after each way of installing them."""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from envs import NEEDS, ROOT, Dist, Env, call

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1200)]

NOT_IN_A_CHECKOUT = shutil.ignore_patterns('build', 'dist', '*.egg-info', '*.so', 'rank', '__pycache__', '.*_cache')
PROGRAM = 'rp_agent/executor/launching/rank'
RUNTIME = {'.py', '.pyi', '.pxd', '.json', '.sh', '.css', '.js', '.typed'}

IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + '.', onerror=lambda name: None):
        if not module.name.endswith('.__main__'):
            try:
                importlib.import_module(module.name)
            except Exception as error:   # what belongs to an extra says which one
                named = f"pip install '{name.replace('_', '-')}[{module.name.rpartition('.')[2]}]'" in str(error)
                # of rp-profiling[analysis] and rp-client[top]
                if not named and getattr(error, 'name', '') not in ('numpy', 'textual', 'rich'):
                    raise
"""

SAY_WHAT_IS_MISSING = """
import radical.pilot as rp
for name in 'Session', 'TaskManager':
    try:
        getattr(rp, name)
    except AttributeError as error:
        print(error)
try:
    from radical.pilot.task_manager import TaskManager
except ModuleNotFoundError as error:
    print(error)
print(rp.TaskDescription({'executable': 'date'}).executable, rp.DONE, hasattr(rp, 'Session'))
"""

PILOT_WITHOUT_AGENT = """
import radical.pilot as rp
with rp.Session() as session:
    pilot = rp.PilotManager(session).submit_pilots(
        rp.PilotDescription({'resource': 'local.exact', 'cores': 1, 'runtime': 5}))
    pilot.wait()
    print(pilot.state, pilot.exception)
"""

SIDE_BY_SIDE = """
import radical.pilot as rp, radical.utils, radical.saga
import os
assert os.path.dirname(radical.utils.__file__) != os.path.dirname(rp.__file__)
print(rp.Session.__module__, radical.saga.__name__, radical.utils.__name__)
"""

START = """
import radical.pilot as rp
try:
    rp.Session()
except Exception as error:
    print(type(error).__name__, error)
"""

CHECK_UPSTREAM = 'from rp_api.distributions import check_upstream; check_upstream(); print("accepted")'
ORIGINAL = 'radical.pilot==1.103.2'

Make = Callable[[], Env]
Dists = dict[str, Dist]


@pytest.fixture(scope='session')
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of packages/ as a fresh checkout has it."""
    target = tmp_path_factory.mktemp('sources') / 'packages'
    shutil.copytree(ROOT / 'packages', target, ignore=NOT_IN_A_CHECKOUT)
    return target


@pytest.fixture(scope='session')
def dists(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Dists:
    """Each distribution by name, its wheel built from its sdist in isolation, but not optimised."""
    target = tmp_path_factory.mktemp('dists')

    def build(name: str) -> Dist:
        out = target / name
        call([sys.executable, '-m', 'build', '--outdir', str(out), str(sources / name)], target, RP_BUILD='quick')
        (sdist,), (wheel,) = out.glob('*.tar.gz'), out.glob('*.whl')
        return Dist(name, sources / name, sdist, wheel)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(NEEDS, pool.map(build, NEEDS), strict=True))


@pytest.fixture(scope='session')
def new_env(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes an empty virtual environment."""
    return lambda: Env(tmp_path_factory.mktemp('env'))


@pytest.fixture(scope='session')
def full_env(dists: Dists, new_env: Make) -> Env:
    """An environment with the wheels of all distributions."""
    env = new_env()
    env.install(*(dist.wheel for dist in dists.values()))
    return env


def files(where: Path, top: Path | None = None) -> set[str]:
    return {str(path.relative_to(top or where)) for path in where.rglob('*') if path.is_file()}


@pytest.fixture(params=NEEDS)
def dist(request: pytest.FixtureRequest, dists: Dists) -> Dist:
    return dists[request.param]


def test_wheel_holds_the_modules_and_their_data_and_nothing_else(dist: Dist) -> None:
    names = {name for name in zipfile.ZipFile(dist.wheel).namelist() if '.dist-info/' not in name}
    scripts = {name.partition('.data/')[2] for name in names if '.data/' in name}
    assert scripts == files(dist.source / 'scripts', top=dist.source)
    names = {name for name in names if '.data/' not in name}
    source = dist.source / 'src'
    expected = {name for name in files(source) if Path(name).suffix in RUNTIME}
    compiled = {name for name in names if name.endswith('.so')}
    assert names - compiled == expected | ({PROGRAM} if dist.name == 'rp-agent' else set())
    assert {name.split('.')[0] + '.pyx' for name in compiled} == {n for n in files(source) if n.endswith('.pyx')}


def test_program_can_be_executed(dists: Dists, full_env: Env) -> None:
    with zipfile.ZipFile(dists['rp-agent'].wheel) as wheel:
        assert wheel.getinfo(PROGRAM).external_attr >> 16 & 0o111 == 0o111
    where = full_env.run('-c', 'import rp_agent; print(rp_agent.__path__[0])').strip()
    assert os.access(Path(where).parent / PROGRAM, os.X_OK)
    assert 'hello from' in call([str(full_env.path / 'bin' / 'radical-pilot-hello.sh')], full_env.path)


def test_extensions_are_typed(dist: Dist) -> None:
    names = zipfile.ZipFile(dist.wheel).namelist()
    compiled = {name.split('.')[0] for name in names if name.endswith('.so')}
    assert compiled <= {name.removesuffix('.pyi') for name in names}


def test_wheel_is_typed_licensed_and_described(dist: Dist) -> None:
    with zipfile.ZipFile(dist.wheel) as wheel:
        names = wheel.namelist()
        (metadata,) = (name for name in names if name.endswith('.dist-info/METADATA'))
        text = wheel.read(metadata).decode()
    assert f'{dist.module}/py.typed' in names
    assert any(name.endswith('/licenses/LICENSE') for name in names)
    assert 'License-Expression: MIT' in text
    assert 'Requires-Python: >=3.10' in text
    assert f'packages/{dist.name}' in text   # how it is installed


def test_radical_stays_a_namespace(dists: Dists) -> None:
    names = zipfile.ZipFile(dists['rp-api'].wheel).namelist()
    assert 'radical/pilot/__init__.py' in names
    assert 'radical/pilot/py.typed' in names
    assert 'radical/__init__.py' not in names


def test_sdist_is_complete(dist: Dist) -> None:
    with tarfile.open(dist.sdist) as archive:
        names = {name.partition('/')[2] for name in archive.getnames()}
    # the editable tests install from the same copy, which leaves what they build in it
    wanted = {name for name in files(dist.source) if not name.startswith('build/') and '.egg-info/' not in name}
    wanted = {name for name in wanted if not name.endswith(('.so', PROGRAM))}
    assert wanted - names == set()
    assert not any(name.startswith('build/') or name.endswith(('.so', PROGRAM)) for name in names)


@pytest.fixture(scope='module', params=NEEDS)
def alone(request: pytest.FixtureRequest, dists: Dists, new_env: Make) -> tuple[str, Env]:
    """An environment with one distribution and what it needs."""
    env = new_env()
    env.install(*(dists[name].wheel for name in (request.param, *NEEDS[request.param])))
    return request.param, env


def test_every_module_can_be_imported_alone(alone: tuple[str, Env], dists: Dists) -> None:
    name, env = alone
    env.run('-c', IMPORT_ALL, dists[name].module)


def test_alone_it_says_what_is_missing(alone: tuple[str, Env]) -> None:
    name, env = alone
    if name == 'rp-profiling':  # the face belongs to rp-api
        assert env.run('-c', 'import importlib.util; print(importlib.util.find_spec("radical"))') == 'None\n'
        return
    *missing, works = env.run('-c', SAY_WHAT_IS_MISSING).splitlines()
    if name == 'rp-client':
        assert missing == []
        assert works == 'date DONE True'
    else:
        assert works == 'date DONE False'
        assert [line.partition(':')[0] for line in missing] == [
            'radical.pilot.Session', 'radical.pilot.TaskManager', 'radical.pilot.task_manager']
        assert all(line.endswith('pip install rp-client') for line in missing)


@pytest.mark.parametrize('alone', ['rp-client'], indirect=True)
def test_client_without_agent_says_so_on_the_pilot(alone: tuple[str, Env]) -> None:
    (line,) = [line for line in alone[1].run('-c', PILOT_WITHOUT_AGENT).splitlines() if line.startswith('FAILED')]
    assert line.endswith('pip install rp-agent')


def test_program(full_env: Env) -> None:
    program = str(full_env.path / 'bin' / 'rp')
    assert 'List, show' in call([program, '--help'], full_env.path)
    version = call([str(full_env.path / 'bin' / 'radical-pilot-version')], full_env.path).strip()
    assert version == full_env.run('-c', 'import radical.pilot as rp; print(rp.version)').strip()
    assert {line.split()[0] for line in call([program, '--version'], full_env.path).splitlines()} == {*NEEDS, 'Python'}
    call([program, 'session', 'list'], full_env.path)


def test_all_together(full_env: Env, dists: Dists) -> None:
    full_env.run('-c', IMPORT_ALL, *(dist.module for dist in dists.values()), 'radical.pilot')


def test_first_example(full_env: Env) -> None:
    lines = full_env.run(str(ROOT / 'examples/first_tasks.py')).splitlines()
    assert [line for line in lines if line.startswith('task.')] == [
        f'task.{number:06d} DONE hello from number {number}' for number in range(8)]


def test_beside_radical_utils_and_saga(full_env: Env) -> None:
    full_env.install('radical.utils', 'radical.saga')
    out = full_env.run('-W', 'ignore', '-c', SIDE_BY_SIDE)
    assert out.splitlines()[-1] == 'rp_client.handles.session radical.saga radical.utils'


@pytest.mark.long
def test_editable_beside_radical_utils_and_saga(dists: Dists, new_env: Make) -> None:
    env = new_env()
    editables = [argument for dist in dists.values() for argument in ('--editable', dist.source)]
    env.install(*editables, 'radical.utils', 'radical.saga', RP_BUILD='quick')
    env.run('-c', IMPORT_ALL, *(dist.module for dist in dists.values()), 'radical.pilot')
    out = env.run('-W', 'ignore', '-c', SIDE_BY_SIDE)
    assert out.splitlines()[-1] == 'rp_client.handles.session radical.saga radical.utils'


def test_refuses_to_start_beside_the_original(dists: Dists, new_env: Make) -> None:
    env = new_env()
    env.install('--no-deps', ORIGINAL)
    env.install(*(dists[name].wheel for name in ('rp-client', *NEEDS['rp-client'])))
    out = env.run('-c', START)
    assert out.startswith('PilotError radical.pilot 1.103.2 is installed')
    assert 'pip uninstall radical.pilot' in out


def test_refuses_to_start_below_the_original(dists: Dists, new_env: Make) -> None:
    env = new_env()
    env.install(*(dists[name].wheel for name in ('rp-api', 'rp-profiling')))
    env.install('--no-deps', ORIGINAL)
    with pytest.raises(AssertionError, match=r'radical\.pilot 1\.103\.2 is installed'):
        env.run('-c', CHECK_UPSTREAM)


def test_starts_beside_the_shim(dists: Dists, new_env: Make, tmp_path: Path) -> None:
    env = new_env()
    shim = shutil.copytree(ROOT / 'tests/compat/shim', tmp_path / 'shim')  # pip builds where the source is
    env.install(*(dists[name].wheel for name in ('rp-api', 'rp-profiling')), shim)
    assert env.run('-c', CHECK_UPSTREAM) == 'accepted\n'
    version = 'import importlib.metadata; print(importlib.metadata.version("radical.pilot"))'
    assert env.run('-c', version) == '1.103.2+local\n'
