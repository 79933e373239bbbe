"""The launcher for jobs, and the process that it works through: with jobs on this host, which need no radical.saga."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rp_api.description.pilot import PilotDescription
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.systems import HOP_SCHEMES, SCHEMES
from rp_client.bootstrap import Bootstrap
from rp_client.launcher import launchers
from rp_client.launcher.base import Context, End, Reports, Start
from rp_client.launcher.batch import launcher, owner
from rp_client.launcher.batch.endpoint import Endpoint
from rp_client.launcher.batch.launcher import BatchLauncher
from rp_client.launcher.batch.systems.registry import batch_system
from rp_client.launcher.launchers import Launchers, launcher_class
from rp_client.launcher.local import LocalLauncher

TIMEOUT = 45.0
URL = 'fork://localhost/'


def a_platform(url: str = URL, **values: Any) -> ResourceConfig:
    return ResourceConfig({'label': 'site.machine', 'resource_manager': 'FORK', 'cores_per_node': 8,
                           'job_manager_endpoint': url} | values)


def a_pilot(**values: Any) -> PilotDescription:
    return PilotDescription({'resource': 'site.machine', 'uid': 'pilot.0000', 'cores': 1} | values)


class Site:
    """A launcher on a loop, and what it has reported. What jobs run stands in the configuration of their pilots."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.loop = Loop()
        self.said: list[tuple[str, ...]] = []
        self.handles: dict[str, Any] = {}
        self.ends: dict[str, End] = {}
        self.launcher = self.another()

    def another(self) -> BatchLauncher:
        """A launcher of another application."""
        return BatchLauncher(Context(self.loop, self.base, {}, Reports(
            self._launched, lambda uid, why: self.said.append(('refused', uid, why)),
            lambda uid, words, queue: self.said.append(('told', uid, words)),
            lambda uid, words, queue: self.said.append(('unschedulable', uid, words)), self._ended)))

    def launch(self, script: str, *uids: str, **config: Any) -> None:
        self.launcher.launch([
            Start(uid, self.base / uid, {'script': script, **config}, a_platform(), a_pilot(uid=uid))
            for uid in uids or ['pilot.0000']])

    def wait(self, ready: Callable[[], object]) -> None:
        """Run the loop until something is so."""
        self._ready = ready
        timer = self.loop.call_later(TIMEOUT, self._fail)
        self._look()
        self.loop.run()
        timer.cancel()

    def _fail(self) -> None:
        log = self.base / 'batch.log'
        pytest.fail(f'it did not come to pass, but {self.handles}, {self.said}, '
                    f'{log.read_text() if log.exists() else "and no process was started"}')

    def end(self, uid: str = 'pilot.0000') -> End:
        self.wait(lambda: uid in self.ends)
        return self.ends[uid]

    def _look(self) -> None:
        if self._ready():
            self.loop.stop()
        else:
            self.loop.call_later(0.02, self._look)

    def _launched(self, uid: str, handle: Any) -> None:
        self.handles[uid] = handle

    def _ended(self, end: End) -> None:
        self.ends[end.uid] = end


def end(launcher: BatchLauncher) -> None:
    launcher._process.let_go()
    launcher._process.reap(TIMEOUT)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    def prepare(config: Any, platform: Any, client: Any) -> Bootstrap:
        return Bootstrap({'bootstrap_0.sh': config['script'].encode()}, ['/bin/sh', './bootstrap_0.sh'],
                         {'TOLD': 'it'}, config.get('copies', {}))

    monkeypatch.setattr(launcher, 'prepare', prepare)
    found = Site(tmp_path)
    yield found
    end(found.launcher)
    found.loop.close()


def test_job_that_ends_in_order(site: Site) -> None:
    site.launch('echo $TOLD; pwd')
    assert site.end() == End('pilot.0000', None, f'it\n{site.base}/pilot.0000\n', '')
    assert site.handles['pilot.0000']['url'] == URL
    assert {what for what, *_ in site.said} <= {'told'}


def test_what_was_made_ready_serves_the_pilots_that_come(site: Site) -> None:
    site.launcher.expect(a_platform())
    process = site.launcher._process.pid
    assert process
    site.launch('echo $TOLD')
    assert site.end().stdout == 'it\n'
    assert site.launcher._process.pid == process


def test_a_host_that_cannot_be_reached_is_not_tried_again_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    program = site.base / 'bin' / 'ssh'
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho >>{site.base}/tried\necho ssh: no way >&2\nexit 255\n')
    program.chmod(0o755)
    monkeypatch.setenv('PATH', f'{program.parent}:{os.environ["PATH"]}')
    platform = a_platform('ssh://host/')
    site.launcher.expect(platform)
    found: list[tuple[str, str]] = []
    site.launcher.locate(platform, '$HOME', lambda path, error: found.append((path, error)))
    site.wait(lambda: found)
    assert found == [('', 'ssh host failed: ssh: no way')]
    assert (site.base / 'tried').read_text() == '\n'


def test_a_host_that_cannot_be_reached_does_not_spoil_what_is_asked_of_others(site: Site) -> None:
    found: dict[str, tuple[str, str]] = {}
    for url in ('ssh://nowhere.invalid/', URL):
        for _ in range(2):
            site.launcher.locate(a_platform(url), '$HOME/x', lambda *told, url=url: found.__setitem__(url, told))
    site.wait(lambda: len(found) == 2)
    assert found[URL] == (f'{os.environ["HOME"]}/x', '')
    assert found['ssh://nowhere.invalid/'][0] == ''


def test_files_of_this_host_go_along(site: Site) -> None:
    bundle = site.base / 'bundle'
    bundle.write_bytes(os.urandom(1 << 20))
    uids = [f'pilot.{number}' for number in range(3)]
    site.launch('true', *uids, copies={'bundle.tar': bundle})
    for uid in uids:
        assert site.end(uid).reason is None
        copy = site.base / uid / 'bundle.tar'
        assert copy.read_bytes() == bundle.read_bytes()
        assert copy.stat().st_mode & 0o777 == 0o600


def test_file_of_this_host_that_is_gone(site: Site) -> None:
    site.launch('true', copies={'bundle.tar': site.base / 'gone'})
    site.wait(lambda: site.said)
    ((what, _, reason),) = site.said
    assert (what, f'{site.base}/gone could not be sent: ' in reason) == ('refused', True), reason


def test_job_that_fails(site: Site) -> None:
    site.launch('echo "no such module" >&2; exit 3')
    end = site.end()
    job = site.handles['pilot.0000']['job']
    said = f'job {job} of pilot.0000 on {URL} failed: exit code 3'
    assert end == End('pilot.0000', said, '', 'no such module\n', f'{site.base}/pilot.0000/bootstrap_0.err', said)


def test_bootstrap_that_tells_why(site: Site) -> None:
    failure = {'stage': 0, 'exit_code': 12, 'sentence': 'there is no python3', 'file': '/box/x.log', 'tail': 'bash: ?'}
    site.launch(f"echo '{json.dumps(failure)}' > bootstrap_0.failed; exit 12")
    end = site.end()
    job = site.handles['pilot.0000']['job']
    assert end == End('pilot.0000', 'pilot.0000: there is no python3', '', 'bash: ?', '/box/x.log',
                      f'job {job} of pilot.0000 on {URL} failed: exit code 12')


def test_job_that_cannot_be_started(site: Site) -> None:
    (site.base / 'pilot.0000').touch()
    site.launch('true')
    site.wait(lambda: site.said)
    ((what, uid, reason),) = site.said
    assert (what, uid) == ('refused', 'pilot.0000')
    assert 'files of the pilot could not be written' in reason
    assert 'File exists' in reason


@pytest.mark.parametrize('which', ['session', 'pilot'])
def test_sandbox_that_others_could_change(site: Site, which: str) -> None:
    """Nothing is written there: links to files of ours may be in the way."""
    path = site.base / 's' / 'pilot.0000'
    path.mkdir(parents=True)
    open_one = path if which == 'pilot' else path.parent
    open_one.chmod(0o777)
    site.launch('true', 's/pilot.0000')
    site.wait(lambda: site.said)
    ((what, _, reason),) = site.said
    assert what == 'refused'
    assert f'{open_one} is not ours alone: others may write to it (mode drwxrwxrwx)' in reason
    assert os.listdir(path) == []


def test_a_defect_is_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    endpoint = Endpoint(URL, told.put)
    try:
        endpoint.request({'op': 'submit', 'url': URL, 'jobs': [{'key': 'pilot.0000', 'sandbox': str(tmp_path)}]})
        refused, trouble = told.get(timeout=TIMEOUT), told.get(timeout=TIMEOUT)
        reason = "submit failed unexpectedly: KeyError: 'files'"
        assert refused == {'event': 'refused', 'key': 'pilot.0000', 'reason': reason}
        assert trouble == {'event': 'trouble', 'url': URL, 'reason': reason}
        endpoint.request({'op': 'check', 'url': URL, 'key': 'next', 'script': 'echo still here'})
        assert told.get(timeout=TIMEOUT)['output'] == 'still here\n'
    finally:
        endpoint.close(TIMEOUT)
    assert 'KeyError' in capsys.readouterr().err


def test_requests_do_not_keep_it_from_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endpoint, '_pause', lambda self, asked: 1e-6)   # all that is left of a second, at times
    polls: queue.SimpleQueue[None] = queue.SimpleQueue()
    monkeypatch.setattr(Endpoint, '_do_poll', lambda self: polls.put(None))
    endpoint = Endpoint(URL, lambda event: None)
    try:
        for _ in range(5000):
            endpoint.request({'op': 'cancel', 'url': URL, 'keys': []})
            polls.get(timeout=TIMEOUT)
    finally:
        endpoint.close(TIMEOUT)


def test_cancel(site: Site) -> None:
    site.launch('sleep 1000')
    site.wait(lambda: site.handles)
    assert site.launcher.cancel('pilot.0000')
    assert site.end().reason is not None


def test_cancelled_before_it_is_submitted(site: Site) -> None:
    uids = [f'pilot.{number}' for number in range(3)]
    site.launch('sleep 1000', *uids)
    for uid in uids:
        site.launcher.cancel(uid)
    site.wait(lambda: not site.launcher._pilots)
    assert {uid for what, uid, *_ in site.said if what == 'refused'} | site.ends.keys() == set(uids)


def test_process_dies(site: Site) -> None:
    """Jobs go on, and the next process watches them."""
    site.launch('while ! test -e go; do sleep 0.05; done; exit 4')
    site.wait(lambda: site.handles)
    first = site.launcher._process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    site.wait(lambda: site.launcher._process.pid not in (first, None))
    (site.base / 'pilot.0000/go').touch()
    assert str(site.end().reason).endswith('failed: exit code 4')


def test_process_hangs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, 'PING_INTERVAL_S', 0.1)
    site.launch('while ! test -e go; do sleep 0.05; done')
    site.wait(lambda: site.handles)
    first = site.launcher._process.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr(owner, 'SILENCE_TIMEOUT_S', 0.5)
    site.wait(lambda: site.launcher._process.pid not in (first, None))
    monkeypatch.setattr(owner, 'SILENCE_TIMEOUT_S', TIMEOUT)
    (site.base / 'pilot.0000/go').touch()
    assert site.end().reason is None


def test_process_that_dies_again_and_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.launcher._process._restarts, 'most', 1)
    site.launch('sleep 1000')
    site.wait(lambda: site.handles)
    for _ in range(2):
        pid = site.launcher._process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        site.wait(lambda: site.launcher._process.pid not in (pid, ) or site.ends)   # noqa: B023
    reason = str(site.end().reason)
    assert reason.startswith('the job of pilot.0000 is not watched any more: the launcher\'s process ended')
    leader = int(site.handles['pilot.0000']['job'].partition('.')[0])
    os.killpg(leader, signal.SIGKILL)


def test_adopt(site: Site) -> None:
    """A job that another application has submitted."""
    site.launch('while ! test -e go; do sleep 0.05; done; exit 5')
    site.wait(lambda: site.handles)
    site.launcher.leave()
    other = site.another()
    assert not other.adopt('pilot.0001', site.base, {})
    assert other.adopt('pilot.0000', site.base / 'pilot.0000', site.handles['pilot.0000'])
    (site.base / 'pilot.0000/go').touch()
    assert str(site.end().reason).endswith('failed: exit code 5')
    end(other)


def test_locate(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[str, str]] = []
    monkeypatch.setenv('PLACE', '/some where')
    for path in '/plain', '$PLACE/x', '~/x', '$NOT_SET_ANYWHERE/x', '/a"b`id`$(id)/$PLACE':
        site.launcher.locate(a_platform(), path, lambda path, error: found.append((path, error)))
    site.wait(lambda: len(found) == 5)
    assert found[:3] == [('/plain', ''), ('/some where/x', ''), (f'{os.environ["HOME"]}/x', '')]
    assert found[3][0] == ''
    assert 'NOT_SET_ANYWHERE' in found[3][1]
    assert found[4] == ('/a"b`id`$(id)//some where', '')


def test_close(site: Site) -> None:
    """Jobs that do not end are cancelled, and the process is gone."""
    site.launch('trap "" TERM; sleep 1000 & wait; sleep 1000')
    site.wait(lambda: site.handles)
    pid = site.launcher._process.pid
    thread = threading.Thread(target=site.loop.run)
    thread.start()
    site.launcher.close(1.0)
    assert site.launcher._pilots == {}
    assert not Path(f'/proc/{pid}').exists()
    site.loop.stop()
    thread.join(TIMEOUT)
    site.launcher.close(1.0)   # once more, after the loop


# which launcher a platform gets

@pytest.mark.parametrize(('url', 'kind'), [
    ('', LocalLauncher), ('fork://localhost/', LocalLauncher), ('local://localhost', LocalLauncher),
    ('fork://host/', BatchLauncher), ('ssh://localhost/', BatchLauncher), ('gsissh://host/', BatchLauncher),
    ('slurm://localhost/', BatchLauncher), ('slurm+ssh://me@host:22/', BatchLauncher),
    ('condor+gsissh://host/', BatchLauncher), ('lgi://host/', BatchLauncher)])
def test_choice(url: str, kind: type) -> None:
    assert launcher_class(a_platform(url)) is kind


@pytest.mark.parametrize('url', ['psi_j://localhost/', 'psij+slurm://h', 'fork+ssh://host/', 'nonsense'])
def test_nobody_takes_it(url: str) -> None:
    with pytest.raises(PlatformError, match=r"job_manager_endpoint of site\.machine is '.*', and no launcher is for "
                                            r'that: local takes .* saga takes .* flux, .* slurm, torque'):
        launcher_class(a_platform(url))


class OnTheMoon(BatchLauncher):
    """A launcher of another distribution."""

    @staticmethod
    def takes(url: str) -> bool:
        return url.startswith(('moon:', 'slurm:'))


def test_launchers_of_others(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    from importlib.metadata import EntryPoint

    monkeypatch.setattr(launchers, '_others', lambda: (
        EntryPoint('moon', f'{__name__}:OnTheMoon', launchers.GROUP),))
    monkeypatch.setattr(EntryPoint, 'load', lambda self: OnTheMoon)
    assert launcher_class(a_platform('moon://sea/')) is OnTheMoon
    assert launcher_class(a_platform('slurm://localhost/')) is BatchLauncher
    with pytest.raises(PlatformError, match='moon takes other ones'):
        launcher_class(a_platform('mars://crater/'))
    made = Launchers(site.launcher.context)
    assert made.of('pilot.1') is None
    assert made.assign('pilot.1', a_platform('moon://sea/')) is made.assign('pilot.2', a_platform('moon://bay/'))
    assert type(made.of('pilot.1')) is OnTheMoon


def test_what_is_refused_at_submission() -> None:
    BatchLauncher.check(a_platform('slurm://localhost/'), a_pilot())
    with pytest.raises(PlatformError, match=r"rp_version of site\.machine is '@devel'"):
        BatchLauncher.check(a_platform('slurm://localhost/', rp_version='@devel'), a_pilot())
    with pytest.raises(PlatformError, match='memory is 5'):
        BatchLauncher.check(a_platform('sge://localhost/'), a_pilot(memory=5))


def test_batch_systems_that_only_radical_saga_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    BatchLauncher.check(a_platform('slurm://localhost/'), a_pilot())
    with pytest.raises(PlatformError, match=r'needed for torque\+ssh://h/ and is not installed: pip install '
                                            r'"rp-client\[saga\]"'):
        BatchLauncher.check(a_platform('torque+ssh://h/'), a_pilot())


def test_the_launcher_knows_the_schemes_of_definitions() -> None:
    for scheme in (*SCHEMES, *HOP_SCHEMES):
        assert batch_system(f'{scheme}://h/').name
