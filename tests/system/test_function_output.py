"""What functions of an executor print, and what is said about its progress and its failures."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from conftest import Run, wait_until

import radical.pilot as rp
from rp_client.handles.session import Session

LONG = 60.0

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module

PROGRAM = Path(__file__).with_name('reporting_executor.py')


@pytest.fixture
def ex(shared: Run) -> Iterator[rp.Executor]:
    with rp.Executor(pilot=shared.pilot, progress=False) as executor:
        yield executor


def report(text: str, *, fails: bool = False) -> str:
    print('says', text)
    logging.getLogger('work').warning('warns %s', text)
    if fails:
        raise ValueError(text)
    return text


def test_futures_have_it(ex: rp.Executor) -> None:
    future = ex.submit(report, 'one')
    assert future.result(LONG) == 'one'
    assert (future.stdout, future.stderr) == ('says one\n', 'warns one\n')   # type: ignore[attr-defined]
    failed = ex.submit(report, 'two', fails=True)
    assert str(failed.exception(LONG)) == 'two'
    assert failed.stdout == 'says two\n'   # type: ignore[attr-defined]
    silent = ex.submit(len, 'three')
    assert silent.result(LONG) == 5
    assert silent.stdout == ''   # type: ignore[attr-defined]


def test_calls_that_wait_or_are_repeated_or_cached(ex: rp.Executor, tmp_path: Path) -> None:
    later = ex.submit(report, ex.submit(report, 'first'))
    assert later.result(LONG) == 'first'
    assert later.stdout == 'says first\n'   # type: ignore[attr-defined]
    again = ex.options(retries=1).submit(attempt, str(tmp_path / 'tried'))
    assert again.result(LONG) == 2
    assert again.stdout == 'attempt 2\n'   # type: ignore[attr-defined]


def attempt(path: str) -> int:
    number = os.path.exists(path) + 1
    print('attempt', number)
    Path(path).touch()
    return 2 // (number - 1)


def test_programs_have_theirs(ex: rp.Executor) -> None:
    program = ex.run('sh', '-c', 'echo out; echo err >&2')
    assert program.result(LONG).stdout == 'out\n'
    assert (program.stdout, program.stderr) == ('out\n', 'err\n')


def test_places(ex: rp.Executor, tmp_path: Path) -> None:
    path = tmp_path / 'all.txt'
    options = {place: ex.options(stdout=place).submit(report, place) for place in ('terminal', 'future', 'file', path)}
    for place, future in options.items():
        assert future.result(LONG) == place
        assert future.stdout == ('' if place == 'file' else f'says {place}\n')   # type: ignore[attr-defined]
    wait_until(lambda: path.exists() and path.read_text() == f'says {path}\nwarns {path}\n')
    with pytest.raises(ValueError, match="stdout is 'paper', it must be 'terminal', 'future', 'file', or a path"):
        ex.options(stdout='paper')


def test_maps_in_chunks(ex: rp.Executor, tmp_path: Path) -> None:
    path = tmp_path / 'all.txt'
    words = [f'w{number}' for number in range(10)]
    assert list(ex.options(stdout=path).map(report, words, chunksize=4)) == words
    wait_until(lambda: path.exists() and path.read_text().count('says') == 10)


def test_the_last_mebibyte(ex: rp.Executor) -> None:
    future = ex.options(stdout='future').submit(print, 'x' * 10_000_000, end='.')
    assert future.result(LONG) is None
    assert len(future.stdout) == 1 << 20   # type: ignore[attr-defined]
    assert future.stdout.endswith('x.')   # type: ignore[attr-defined]


# the program that a person runs

def run(base: Path, what: str, **environment: str) -> tuple[str, str]:
    """Standard output and error of the program, which are files."""
    known = {name: value for name, value in os.environ.items() if not name.endswith('_REPORT')}
    done = subprocess.run([sys.executable, str(PROGRAM), what], cwd=base, env=known | environment, text=True,
                          capture_output=True, timeout=100, check=True)
    return done.stdout, done.stderr


def test_the_end_says_what_has_failed(base: Path) -> None:
    out, err = run(base, 'failing')
    assert out == 'a result\n'
    session, *causes, see = err.splitlines()
    assert session.endswith(': 4 failed')
    assert sorted(causes) == [
        '  1 task, such as task.000000: exit code: 3: reason', '  3 calls of fail: ValueError: bad']
    assert see == f'see: rp task list --failed --session {session.partition(":")[0]}; rp why task.000000'


@pytest.mark.parametrize('how', ['variable', 'argument'])
def test_nothing_is_said_if_it_is_off(base: Path, how: str) -> None:
    environment = {'RADICAL_REPORT': 'FALSE'} if how == 'variable' else {}
    assert run(base, 'failing' if how == 'variable' else 'quiet', **environment) == ('a result\n', '')


def test_the_end_says_what_was_cancelled(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription(resource='local.exact', cores=1, runtime=5)))
        tmgr.submit_tasks([rp.TaskDescription(executable='sleep', arguments=[60]) for _ in range(2)])
        tmgr.submit_sweep(rp.TaskDescription(executable='sleep', arguments=['{}']), [60, 60, 60])
    assert capsys.readouterr().err == (
        f'{session.uid}: 5 tasks are cancelled, as the session closes before they have ended\n')


def test_a_session_that_goes_on_cancels_nothing(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = rp.Session(cfg={'base': str(base)})
    tmgr = rp.TaskManager(session)
    tmgr.submit_tasks(rp.TaskDescription(executable='true'))
    session.close(terminate=False)
    assert capsys.readouterr().err == ''
    Session(uid=session.uid, cfg={'base': str(base)}, progress=False).close()
    assert capsys.readouterr().err == ''


def test_ctrl_c_says_what_was_cancelled(base: Path) -> None:
    known = {name: value for name, value in os.environ.items() if not name.endswith('_REPORT')}
    with subprocess.Popen([sys.executable, str(PROGRAM), 'endless'], cwd=base, env=known, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == 'running\n'
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert 'rp.Executor: 5 calls and programs are cancelled, as it ends before them\n' in err


def test_the_thread_of_the_display_ends_with_the_executor(shared: Run) -> None:
    def threads() -> set[str]:
        return {thread.name for thread in threading.enumerate()}

    with rp.Executor(pilot=shared.pilot) as ex:
        ex.run('true').result(LONG)
        assert ('rp.progress' in threads()) is (os.environ.get('RADICAL_REPORT') != 'FALSE')
    time.sleep(0.1)
    assert 'rp.progress' not in threads()
