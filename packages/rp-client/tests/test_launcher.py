"""Starting agents, watching them and ending them: with programs that take the agent's place."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from client_support import Events, Later, a_pilot

from rp_api import distributions, states
from rp_api.description.pilot import PilotDescription
from rp_api.errors import PilotError
from rp_api.loop import process_handle
from rp_api.loop.event_loop import Loop
from rp_api.platforms.definition import ResourceConfig
from rp_api.system import agent_process
from rp_api.system.agent_process import AgentProcess
from rp_api.system.processes import process_table, read_process, reap_left, sweep
from rp_client.core.pilot import PilotRecord
from rp_client.flow.launching import Launch, PilotLaunching
from rp_client.launcher.base import Context, End, Launcher, Reports, Start
from rp_client.launcher.local import LocalLauncher

TIMEOUT = 30.0
SESSION = f'session.of.tests.{os.getpid()}'

# the program: it does what its configuration says, and can tell that it has begun
FAKE = '''
import json, os, signal, subprocess, sys

def ready():
    open('ready', 'w').close()

def main():
    with open(sys.argv[1]) as file:
        code = json.load(file)['code']
    os.chdir(os.path.dirname(sys.argv[1]))
    exec(code)
'''


def a_start(uid: str, sandbox: Path, config: dict[str, Any]) -> Start:
    return Start(uid, sandbox, config, ResourceConfig({'resource_manager': 'FORK'}), PilotDescription())


class Site:
    """A launcher on a loop, whose agents do what a test wants."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.loop = Loop()
        self.ends: list[End] = []
        self.launched: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.wanted = 0
        reports = Reports(lambda uid, handle: self.launched.append(uid), self._refused, self._unwanted,
                          self._unwanted, self._ended)
        self.launcher = LocalLauncher(Context(self.loop, base, {'RP_SESSION_ID': SESSION}, reports))
        self._thread: threading.Thread | None = None

    def _unwanted(self, uid: str, news: str, queue: object) -> None:
        pytest.fail(f'{uid}: {news}')

    def sandbox(self, uid: str = 'pilot.0000') -> Path:
        path = self.base / uid
        path.mkdir(exist_ok=True)
        return path

    def launch(self, code: str, uid: str = 'pilot.0000') -> Path:
        """Start an agent that runs some Python; gives its sandbox."""
        sandbox = self.sandbox(uid)
        os.mkfifo(sandbox / 'ready')
        self.wanted += 1
        self.launcher.launch([a_start(uid, sandbox, {'code': code})])
        return sandbox

    def _refused(self, uid: str, reason: str) -> None:
        self.refused.append((uid, reason))

    def end(self) -> End:
        """How the one agent ended."""
        self.wait()
        (end,) = self.ends
        return end

    def wait(self) -> None:
        """Run the loop until all agents have ended."""
        self.loop.call_later(TIMEOUT, pytest.fail, 'the agents did not end')
        self.loop.run()

    def run_in_thread(self) -> None:
        """Run the loop until the test is over."""
        self.wanted = -1
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def close(self) -> None:
        self.launcher.close(TIMEOUT if self._thread else 0)
        if self._thread:
            self.loop.stop()
            self._thread.join(TIMEOUT)
            assert not self._thread.is_alive()
        self.loop.close()

    def _ended(self, end: End) -> None:
        self.ends.append(end)
        if len(self.ends) == self.wanted:
            self.loop.stop()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    package = tmp_path / 'fake/rp_agent'
    package.mkdir(parents=True)
    (package / '__init__.py').touch()
    (package / 'cli.py').write_text(FAKE)
    monkeypatch.setenv('PYTHONPATH', str(tmp_path / 'fake'))
    monkeypatch.setattr(distributions, 'require', lambda part: None)
    made = Site(tmp_path)
    yield made
    made.close()


def begun(sandbox: Path) -> int:
    """The process id of an agent that has called `ready()`; the file is written before."""
    (sandbox / 'ready').read_bytes()
    return int((sandbox / 'pid').read_text())


BLOCK = "open('pid', 'w').write(str(os.getpid())); ready(); signal.pause()"


# how agents end

def test_agent_ends_in_order(site: Site) -> None:
    site.launch("print('said'); print('complained', file=sys.stderr)")
    assert site.end() == End('pilot.0000', None, 'said\n', 'complained\n')


@pytest.mark.parametrize(('code', 'reason'), [
    ('sys.exit(3)', 'ended with exit code 3'),
    ('os.kill(os.getpid(), signal.SIGKILL)', 'was killed by signal 9 (SIGKILL)'),
    ('os.kill(os.getpid(), signal.SIGTERM)', 'was killed by signal 15 (SIGTERM)'),
    ('os.kill(os.getpid(), 40)', 'was killed by signal 40')])
def test_agent_fails(site: Site, code: str, reason: str) -> None:
    site.launch(code)
    assert site.end().reason == f'the agent of pilot.0000 {reason}'


def test_agent_with_an_error(site: Site) -> None:
    site.launch("raise ValueError('what went wrong')")
    end = site.end()
    assert end.reason == 'the agent of pilot.0000 ended with exit code 1'
    assert end.stderr.endswith('ValueError: what went wrong\n')


def test_last_words(site: Site) -> None:
    """The end of what was written; all of it is in the files."""
    sandbox = site.launch("print('x' * 9000 + 'end'); sys.stderr.buffer.write(b'a\\xffb')")
    end = site.end()
    assert len(end.stdout) == 2048
    assert end.stdout.endswith('xend\n')
    assert end.stderr == 'a\ufffdb'
    assert len((sandbox / 'agent_0.out').read_text()) == 9004


def test_files_have_gone(site: Site) -> None:
    """As they do when the pilot cleans up."""
    site.launch("os.unlink('agent_0.out'); os.unlink('agent_0.err')")
    assert site.end() == End('pilot.0000', None, '', '')


def test_agents_are_told_apart(site: Site) -> None:
    site.launch('print(1)', 'pilot.0001')
    site.launch('print(2); sys.exit(2)', 'pilot.0002')
    site.wait()
    assert sorted(site.ends) == [
        End('pilot.0001', None, '1\n', ''),
        End('pilot.0002', 'the agent of pilot.0002 ended with exit code 2', '2\n', '')]


# how agents begin

def test_configuration_is_private(site: Site) -> None:
    config = site.sandbox() / 'agent_0.cfg'
    config.write_text('a longer text that was there before, ' * 100)
    config.chmod(0o666)
    site.launch('pass')
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert json.loads(config.read_text()) == {'code': 'pass', 'launcher': os.getpid()}
    site.end()


def test_every_sandbox_has_the_script_that_starts_the_pilot(site: Site) -> None:
    config = site.launch('open("ran", "a").write(sys.argv[1])') / 'agent_0.cfg'
    site.end()
    subprocess.run(['/bin/sh', site.sandbox() / 'bootstrap_0.sh'], check=True)
    assert (site.sandbox() / 'ran').read_text() == f'{config}{config}'


def test_configuration_is_not_written_elsewhere(site: Site, tmp_path: Path) -> None:
    config = site.sandbox() / 'agent_0.cfg'
    config.symlink_to(tmp_path / 'elsewhere')
    site.launch('pass')
    assert not (tmp_path / 'elsewhere').exists()
    assert not config.is_symlink()
    assert json.loads(config.read_text()) == {'code': 'pass', 'launcher': os.getpid()}
    site.end()


def test_process_of_an_agent(site: Site) -> None:
    """It has the application's interpreter, a session of its own, so that ctrl-c misses it, and nothing to read."""
    site.launch('print(json.dumps([os.getsid(0) == os.getpid(), sys.stdin.read(), sys.executable]))')
    assert json.loads(site.end().stdout) == [True, '', sys.executable]


def write_modules(directory: Path) -> None:
    for name in ('json.py', 'rp_agent.py', 'tarfile.py'):
        (directory / name).write_text('raise RuntimeError("taken for a module")')


@pytest.mark.parametrize('path', ['{}', '{}:', ':{}'])
def test_files_in_the_sandbox_are_no_modules(site: Site, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user has staged there may have any name."""
    monkeypatch.setenv('PYTHONPATH', path.format(site.base / 'fake'))
    write_modules(site.sandbox())
    site.launch('import tarfile')
    assert site.end().reason is None


def test_files_beside_the_application_are_no_modules(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.base / 'work').mkdir()
    monkeypatch.chdir(site.base / 'work')
    write_modules(site.base / 'work')
    site.launch('import tarfile')
    assert site.end().reason is None


def test_python_path_may_be_relative(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is for the application."""
    monkeypatch.chdir(site.base)
    monkeypatch.setenv('PYTHONPATH', 'fake')
    site.launch('import rp_agent; print(rp_agent.__file__)')
    assert site.end().stdout == f'{site.base}/fake/rp_agent/__init__.py\n'


def test_sandbox_that_is_not_there(site: Site) -> None:
    site.launcher.launch([a_start('pilot.0000', site.base / 'nowhere', {})])
    ((uid, reason),) = site.refused
    assert uid == 'pilot.0000'
    assert 'nowhere' in reason
    assert site.launched == []


def test_agent_is_not_installed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def require(part: str) -> None:
        raise PilotError(f'{part} is not installed')

    monkeypatch.setattr(distributions, 'require', require)
    site.launch('pass')
    assert site.refused == [('pilot.0000', 'rp-agent is not installed')]


def test_agent_that_cannot_be_watched(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not left running."""
    pids: list[int] = []

    def open_process(pid: int, started: int) -> int:
        pids.append(pid)
        raise OSError(24, 'Too many open files')

    monkeypatch.setattr(process_handle, 'open_process', open_process)
    site.launch(BLOCK)
    ((_, reason),) = site.refused
    assert 'Too many open files' in reason
    assert [read_process(pid) for pid in pids] == [None]


def _children() -> set[int]:
    return {process.pid for process in process_table().values() if process.parent == os.getpid()}


def test_agent_that_cannot_be_noted(site: Site) -> None:
    """No other application would find it: it is not left running, and nothing else either."""
    sandbox = site.sandbox()
    (sandbox / 'agent_0.process').mkdir()
    before = os.listdir('/proc/self/fd')
    children = _children()
    site.launch(BLOCK)
    ((_, reason),) = site.refused
    assert 'agent_0.process' in reason
    assert site.launched == []
    assert os.listdir('/proc/self/fd') == before
    assert _children() <= children


def test_agent_that_is_gone_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the children of an application that ignores SIGCHLD are when they have ended."""
    monkeypatch.setattr(agent_process, 'start_time', lambda pid: None)
    site.launch(BLOCK)
    ((_, reason),) = site.refused
    assert reason == f'the agent ended when it was started, see {site.sandbox()}/agent_0.err'


def test_agent_waits_until_it_is_noted(site: Site) -> None:
    """It reads the end of its standard input when it is, also if a fork of the application has the other end."""
    site.launch("sys.stdin.read(); print(open('agent_0.process').read())")
    noted = json.loads(site.end().stdout)
    assert noted.keys() == {'pid', 'started'}


# how they are ended

def test_kill(site: Site) -> None:
    begun(site.launch(BLOCK))
    site.launcher.kill('pilot.0000')
    assert site.end().reason == 'the agent of pilot.0000 was killed by signal 9 (SIGKILL)'
    site.launcher.kill('pilot.0000')


def test_kill_of_an_unknown_one(site: Site) -> None:
    site.launcher.kill('pilot.0007')


def test_close_without_agents(site: Site) -> None:
    site.launcher.close(0)
    site.launcher.close(TIMEOUT)


def test_close_waits_for_those_that_end(site: Site) -> None:
    sandbox = site.launch("open('pid', 'w').write(str(os.getpid())); ready(); open('ready').read(); print('well')")
    site.run_in_thread()
    pid = begun(sandbox)
    (sandbox / 'ready').write_text('')
    site.launcher.close(TIMEOUT)
    assert read_process(pid) is None
    site.loop.stop()
    site.close()
    assert site.ends == [End('pilot.0000', None, 'well\n', '')]


def test_close_ends_those_that_do_not(site: Site) -> None:
    pids = [begun(site.launch(BLOCK, f'pilot.{number}')) for number in range(2)]
    site.run_in_thread()
    site.launcher.close(0)
    assert [read_process(pid) for pid in pids] == [None, None]


def test_close_after_the_loop(site: Site) -> None:
    """Nobody is there to be told, but the agents end all the same."""
    pids = [begun(site.launch(BLOCK, f'pilot.{number}')) for number in range(2)]
    site.launcher.close(0)
    assert [read_process(pid) for pid in pids] == [None, None]
    assert site.ends == []


# agents that another application has started

class Stranger:
    """An agent that nobody here has started."""

    def __init__(self, site: Site, uid: str = 'pilot.0000') -> None:
        self.sandbox = site.sandbox(uid)
        self.process = subprocess.Popen(['sleep', '1000'], start_new_session=True)
        agent = AgentProcess.of(self.process.pid)
        assert agent is not None
        agent.note(self.sandbox)

    def end(self) -> int:
        self.process.kill()
        return self.process.wait(TIMEOUT)


@pytest.fixture
def stranger(site: Site) -> Iterator[Stranger]:
    made = Stranger(site)
    yield made
    made.end()


def test_adopted_agent_is_watched(site: Site, stranger: Stranger) -> None:
    site.wanted = 1
    (stranger.sandbox / 'agent_0.err').write_text('complained')
    assert site.launcher.adopt('pilot.0000', stranger.sandbox, {})
    stranger.end()
    assert site.end() == End('pilot.0000', None, '', 'complained')


def test_adopted_agent_is_killed(site: Site, stranger: Stranger) -> None:
    site.wanted = 1
    assert site.launcher.adopt('pilot.0000', stranger.sandbox, {})
    site.launcher.kill('pilot.0000')
    site.wait()
    assert stranger.process.wait(TIMEOUT) == -signal.SIGKILL


def test_adopted_agent_is_ended_at_the_end(site: Site, stranger: Stranger) -> None:
    assert site.launcher.adopt('pilot.0000', stranger.sandbox, {})
    site.launcher.close(0)
    assert stranger.process.wait(TIMEOUT) == -signal.SIGKILL


def test_only_the_agent_of_the_pilot_is_adopted(site: Site, stranger: Stranger) -> None:
    """Not another process that has its number by now, or looks like it."""
    AgentProcess(stranger.process.pid, 1).note(site.sandbox('pilot.0001'))
    assert not site.launcher.adopt('pilot.0001', site.sandbox('pilot.0001'), {})
    assert not site.launcher.adopt('pilot.0002', site.sandbox('pilot.0002'), {})
    site.launcher.close(TIMEOUT)
    assert stranger.process.poll() is None


def test_agent_that_has_ended_is_not_adopted(site: Site, stranger: Stranger) -> None:
    stranger.end()
    assert not site.launcher.adopt('pilot.0000', stranger.sandbox, {})


def test_agents_are_left(site: Site) -> None:
    """They go on, and nobody hears of their ends."""
    pid = begun(site.launch(BLOCK))
    site.launcher.leave()
    site.launcher.close(TIMEOUT)
    process = read_process(pid)
    assert process is not None
    assert process.alive
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([pidfd], [], [], TIMEOUT)[0]
    os.close(pidfd)
    reap_left()
    assert read_process(pid) is None
    assert site.ends == []


# a grandchild that keeps a pipe open for as long as it lives
LEAVE = '''
environ = os.environ | {{'RP_SESSION_ID': {session!r}, 'RP_PILOT_ID': {pilot!r}}}
pipe = os.open('alive', os.O_WRONLY)
subprocess.Popen(['sleep', '1000'], pass_fds=[pipe], start_new_session=True, env=environ)
sys.exit({code})
'''


def leave(site: Site, pilot: str, code: int) -> int:
    """Run an agent that leaves a process of a pilot; gives the end of a pipe that is closed when that has ended."""
    os.mkfifo(site.sandbox() / 'alive')
    pipe = os.open(site.sandbox() / 'alive', os.O_RDONLY | os.O_NONBLOCK)
    site.launch(LEAVE.format(session=SESSION, pilot=pilot, code=code))
    site.wait()
    return pipe


def test_leftovers_of_a_failed_agent_are_ended(site: Site) -> None:
    pipe = leave(site, 'pilot.0000', 1)
    os.set_blocking(pipe, True)
    assert os.read(pipe, 1) == b''
    os.close(pipe)


@pytest.mark.parametrize(('pilot', 'code'), [('pilot.0001', 1), ('pilot.0000', 0)])
def test_what_others_run_is_not_touched(site: Site, pilot: str, code: int) -> None:
    """Processes of other pilots, and what an agent that ended in order may have left with good reason."""
    pipe = leave(site, pilot, code)
    try:
        with pytest.raises(BlockingIOError):
            os.read(pipe, 1)
    finally:
        assert sweep({'RP_SESSION_ID': SESSION, 'RP_PILOT_ID': pilot}, signal.SIGKILL)
        os.set_blocking(pipe, True)
        assert os.read(pipe, 1) == b''
        os.close(pipe)


# the component that uses a launcher

class Starts(Launcher):
    """A launcher that only remembers; `far` ones find variables filled in elsewhere."""

    def __init__(self, *, near: bool = True) -> None:
        self.near = near   # type: ignore[misc]
        self.bulks: list[list[Start]] = []
        self.located: list[tuple[str, Callable[[str, str], object]]] = []
        self.cancelled: list[str] = []

    @property
    def starts(self) -> list[Start]:
        return [start for bulk in self.bulks for start in bulk]

    @staticmethod
    def takes(url: str) -> bool:
        raise NotImplementedError

    def sees_sandboxes(self, platform: ResourceConfig) -> bool:   # type: ignore[override]
        return self.near

    def locate(self, platform: ResourceConfig, path: str, done: Callable[[str, str], object]) -> None:
        self.located.append((path, done))

    def cancel(self, uid: str) -> bool:
        self.cancelled.append(uid)
        return True

    def launch(self, starts: Sequence[Start]) -> None:
        self.bulks.append(list(starts))

    def adopt(self, uid: str, sandbox: Path, handle: Mapping[str, Any]) -> bool:
        raise NotImplementedError

    def clear(self, uid: str) -> None:
        raise NotImplementedError

    def kill(self, uid: str) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def close(self, timeout: float) -> None:
        raise NotImplementedError


class One:
    """Takes the place of the launchers: all pilots have the same one."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def assign(self, uid: str, platform: ResourceConfig) -> Launcher:
        return self._launcher

    def of(self, uid: str) -> Launcher:
        return self._launcher


ARRIVED, MADE = ('get', 'publish'), ('staging_in_start', 'staging_in_stop')
"""Events of a pilot that reaches the component, and of its sandbox."""


class Launching:
    """The component, and what comes of it."""

    def __init__(self, base: Path, *, near: bool = True) -> None:
        self.base = base
        self.launcher = Starts(near=near)
        self.reached: list[Callable[[str], object]] = []
        self.holds = False
        self.intended: list[tuple[Mapping[PilotRecord, Sequence[str]], Callable[[], object]]] = []
        self.later = Later()
        self.events = Events()
        self.failed: list[tuple[str, str, str]] = []
        self.states: list[tuple[str, list[str]]] = []
        self.component = PilotLaunching(
            '0000', self.events, self._advanced, One(self.launcher), self._common,   # type: ignore[arg-type]
            self.later, lambda platform, done: self.reached.append(done), self._fail, self._intend)

    def put(self, *pilots: PilotRecord) -> None:
        platform = ResourceConfig({'resource_manager': 'FORK', 'cores_per_node': 7})
        self.component.put([Launch(pilot, platform, {'components': {}}) for pilot in pilots])

    def _intend(self, submissions: Mapping[PilotRecord, Sequence[str]], done: Callable[[], object]) -> None:
        self.intended.append((submissions, done))
        if not self.holds:
            done()

    @staticmethod
    def _common() -> dict[str, Any]:
        return {'session': 'session', 'profile': True, 'registry_address': 'ipc:///hub',
                'coordination': {'endpoint': 'tcp://10.0.0.1:4242'}}

    def _fail(self, pilot: PilotRecord, sentence: str, where: str) -> None:
        self.failed.append((pilot.uid, sentence, where))

    def _advanced(self, pilots: Sequence[PilotRecord], state: str) -> None:
        for pilot in pilots:
            pilot.state = state
        self.states.append((state, [pilot.uid for pilot in pilots]))


@pytest.fixture
def launching(tmp_path: Path) -> Launching:
    (tmp_path / 'client').mkdir()
    return Launching(tmp_path)


def test_pilots_are_launched(launching: Launching, tmp_path: Path) -> None:
    first = a_pilot('pilot.1', tmp_path, cores=3, runtime=5, output_staging=['x'], cleanup=True)
    launching.put(first, a_pilot('pilot.2', tmp_path))
    assert launching.states == [(states.PMGR_LAUNCHING, ['pilot.1', 'pilot.2'])]
    assert len(launching.launcher.bulks) == 1
    start = launching.launcher.starts[0]
    assert (start.uid, start.sandbox) == ('pilot.1', Path(first.directories.pilot))
    assert stat.S_IMODE(start.sandbox.stat().st_mode) == 0o700
    wanted = {'pilot': 'pilot.1', 'backup_nodes': 0, 'resource': 'local.exact', 'runtime': 5,
              'nodes': 0, 'cores': 3, 'gpus': 0, 'memory': 0, 'cleanup': True, 'output_staging': ['x'],
              'agent_uid': 'agent_0', 'agent': {'components': {}}, 'reconfig_src': None, 'partitions': 0,
              'requeue': False, 'enable_ep': False, 'prepare_env': {}, 'app_comm': [], 'services': [],
              'client_sandbox': f'{tmp_path}/client', 'resource_sandbox': f'{tmp_path}/resource',
              'session_sandbox': f'{tmp_path}/resource/session',
              'pilot_sandbox': f'{tmp_path}/resource/session/pilot.1'}
    platform = start.config['platform']
    assert start.config == launching._common() | wanted | {'platform': platform}
    assert platform['cores_per_node'] == 7
    assert json.loads(json.dumps(start.config)) == start.config
    assert launching.events.about('pilot.1') == [*ARRIVED, *MADE, 'submission_start']
    assert launching.component.launched('pilot.1') is first
    assert launching.states[1:] == [(states.PMGR_ACTIVE_PENDING, ['pilot.1'])]
    assert launching.events.about('pilot.1') == [
        *ARRIVED, *MADE, 'submission_start', 'submission_stop', 'publish', 'put']
    assert launching.failed == []


@pytest.fixture
def far(tmp_path: Path) -> Launching:
    """For agents on other hosts."""
    return Launching(tmp_path, near=False)


def test_far_pilots_wait_for_the_network(far: Launching, tmp_path: Path) -> None:
    far.put(a_pilot('pilot.1', tmp_path), a_pilot('pilot.2', tmp_path))
    assert (far.launcher.located, far.launcher.starts) == ([], [])
    (reached,) = far.reached   # once for all
    reached('')
    first, second = far.launcher.located
    assert first[0] == f'{tmp_path}/resource'
    first[1]('/scratch/me/resource', '')
    assert far.launcher.starts == []
    second[1]('/scratch/you/resource', '')
    assert [[str(start.sandbox) for start in bulk] for bulk in far.launcher.bulks] == [
        ['/scratch/me/resource/session/pilot.1', '/scratch/you/resource/session/pilot.2']]
    config = far.launcher.starts[0].config
    assert config['resource_sandbox'] == '/scratch/me/resource'
    assert config['registry_address'] == 'tcp://10.0.0.1:4242'
    assert not (tmp_path / 'resource').exists()


def test_the_submission_of_a_job_is_noted_first(far: Launching, tmp_path: Path) -> None:
    """With the submissions of applications that were killed; their files are not staged again."""
    far.holds = True
    pilots = [a_pilot(f'pilot.{number}', tmp_path, input_staging=['nothing']) for number in range(3)]
    platform = ResourceConfig({'resource_manager': 'FORK'})
    far.component.put([Launch(pilot, platform, {'components': {}}, ['a']) for pilot in pilots])
    far.reached[0]('')
    for path, done in far.launcher.located:
        done(path, '')
    (submissions, noted), = far.intended
    assert not far.launcher.bulks
    far.component.cancelled(pilots[2])
    pilots[2].state = states.CANCELED
    noted()
    looked_for, starts = far.launcher.bulks
    assert [(start.uid, start.earlier, start.submission) for start in looked_for] == [('pilot.2', ['a'], '')]
    assert [start.uid for start in starts] == ['pilot.0', 'pilot.1']
    assert [[*start.earlier, start.submission] for start in starts] == list(submissions.values())[:2]
    assert len({start.submission for start in starts} | {'a', ''}) == 4


def test_no_network(far: Launching, tmp_path: Path) -> None:
    far.put(a_pilot('pilot.1', tmp_path))
    far.reached[0]('the hub cannot listen at tcp://x:*: No such device')
    assert [sentence for _, sentence, _ in far.failed] == [
        'pilot.1 could not be launched: the hub cannot listen at tcp://x:*: No such device']
    assert far.launcher.located == []


def test_variable_that_is_not_set_there(far: Launching, tmp_path: Path) -> None:
    """It costs the pilot that uses it, not the others."""
    far.put(a_pilot('pilot.1', tmp_path), a_pilot('pilot.2', tmp_path))
    far.reached[0]('')
    (_, first), (_, second) = far.launcher.located
    first('', 'SCRATCH: unbound variable')
    second('/there', '')
    assert [start.uid for start in far.launcher.starts] == ['pilot.2']
    ((uid, sentence, _),) = far.failed
    assert uid == 'pilot.1'
    assert sentence.endswith('is not a path on the platform: SCRATCH: unbound variable')


def test_job_of_a_cancelled_pilot(far: Launching, tmp_path: Path) -> None:
    pilot = a_pilot('pilot.1', tmp_path)
    far.put(pilot)
    far.reached[0]('')
    far.launcher.located[0][1]('/there', '')
    pilot.state = states.CANCELED
    assert far.component.launched('pilot.1') is None
    far.component.refused('pilot.1', 'too late')
    assert far.failed == []
    assert pilot.state == states.CANCELED


def test_files_come_first(launching: Launching, tmp_path: Path) -> None:
    """They are moved outside of the loop, so that nobody else is held up."""
    (tmp_path / 'client/a').write_text('data')
    pilot = a_pilot('pilot.1', tmp_path, input_staging=['a > b'])
    launching.put(pilot, a_pilot('pilot.2', tmp_path))
    assert [start.uid for start in launching.launcher.starts] == ['pilot.2']
    launching.later.work()
    assert [start.uid for start in launching.launcher.starts] == ['pilot.2', 'pilot.1']
    assert Path(pilot.directories.pilot, 'b').read_text() == 'data'
    assert launching.events.about('pilot.1') == [
        *ARRIVED, *MADE, 'staging_in_start', 'staging_in_stop', 'submission_start']


def test_files_that_are_not_there(launching: Launching, tmp_path: Path) -> None:
    pilot = a_pilot('pilot.1', tmp_path, input_staging=['none'])
    launching.put(pilot)
    launching.later.work()
    ((uid, sentence, where),) = launching.failed
    assert (uid, where) == ('pilot.1', pilot.directories.pilot)
    assert sentence.startswith('pilot.1 could not be launched: staging directive')
    assert sentence.endswith(f'{tmp_path}/client/none: No such file or directory')
    assert launching.launcher.starts == []


def test_sandboxes_are_private_whatever_the_umask(launching: Launching, tmp_path: Path) -> None:
    pilot = a_pilot('pilot.1', tmp_path)
    before = os.umask(0)
    try:
        launching.put(pilot)
    finally:
        os.umask(before)
    for path in (pilot.directories.session, pilot.directories.pilot):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700


@pytest.mark.parametrize('which', ['session', 'pilot'])
@pytest.mark.parametrize('staging', [[], ['a']])
def test_sandbox_that_others_could_change(launching: Launching, tmp_path: Path, which: str, staging: list[str]) -> None:
    (tmp_path / 'client/a').touch()
    pilot = a_pilot('pilot.1', tmp_path, input_staging=staging)
    path = Path(getattr(pilot.directories, which))
    path.mkdir(parents=True)
    path.chmod(0o770)
    launching.put(pilot)
    launching.later.work()
    assert [sentence for _, sentence, _ in launching.failed] == [
        f'pilot.1 could not be launched: {path} is not ours alone: others may write to it (mode 0770, allowed is 0750)']
    assert launching.launcher.starts == []


def test_sandbox_that_others_can_read(launching: Launching, tmp_path: Path) -> None:
    """As users may want it who have results for their group."""
    pilot = a_pilot('pilot.1', tmp_path)
    Path(pilot.directories.pilot).mkdir(parents=True, mode=0o750)
    os.chmod(pilot.directories.pilot, 0o750)
    launching.put(pilot)
    assert launching.failed == []
    assert stat.S_IMODE(os.stat(pilot.directories.pilot).st_mode) == 0o750


def test_sandbox_cannot_be_made(launching: Launching, tmp_path: Path) -> None:
    (tmp_path / 'resource').touch()
    launching.put(a_pilot('pilot.1', tmp_path))
    assert f'{tmp_path}/resource' in launching.failed[0][1]
    assert launching.states == [(states.PMGR_LAUNCHING, ['pilot.1'])]
    assert launching.events.about('pilot.1') == [*ARRIVED, 'staging_in_start', 'staging_in_fail']


def test_agent_cannot_be_started(launching: Launching, tmp_path: Path) -> None:
    launching.put(a_pilot('pilot.1', tmp_path))
    launching.component.refused('pilot.1', 'No space left on device')
    assert launching.failed[0][1] == 'pilot.1 could not be launched: No space left on device'
    assert launching.events.about('pilot.1') == [*ARRIVED, *MADE, 'submission_start']


def test_cancelled_while_files_are_moved(launching: Launching, tmp_path: Path) -> None:
    (tmp_path / 'client/a').touch()
    pilot = a_pilot('pilot.1', tmp_path, input_staging=['a'])
    launching.put(pilot)
    pilot.state = states.CANCELED
    launching.later.work()
    assert (launching.launcher.starts, launching.failed) == ([], [])
    assert pilot.state == states.CANCELED
