"""`rp run` as users start it: outputs, exit codes, journals, and an end by Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import processes_with, wait_until

from rp_api.coordination.sessions import summary

RP = [sys.executable, '-m', 'rp_client.cli', 'run', '--cores', '2']


@pytest.fixture
def environment(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(base))
    monkeypatch.delenv('XDG_STATE_HOME', raising=False)
    monkeypatch.chdir(base)


def rp_run(*words: str, text: str = '') -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RP, *words], input=text, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.usefixtures('environment')
def test_outputs_and_exit_code(base: Path) -> None:
    program = base / 'sim.sh'
    program.write_text('#!/bin/sh\necho "$1 in $PWD"\necho "error of $1" >&2\nexit $2\n')
    program.chmod(0o755)
    done = rp_run('--keep-order', '--', './sim.sh', '{1}', '{2}', ':::', 'a $HOME', 'b', 'c', ':::+', '0', '1', '7')
    assert done.returncode == 2
    assert done.stdout.splitlines() == [f'{name} in {base}' for name in ('a $HOME', 'b', 'c')]
    assert [line for line in done.stderr.splitlines() if line.startswith('error')] == [
        'error of a $HOME', 'error of b', 'error of c']
    assert '2 tasks failed' in done.stderr
    assert sorted(path.name for path in base.iterdir() if not path.name.startswith('.')) == ['sim.sh']


@pytest.mark.usefixtures('environment')
def test_lines_of_json() -> None:
    words = ['--json', '--shell', 'echo {}; echo error >&2; exit {}', ':::', '0', '3']
    assert json.loads(rp_run('--dry-run', *words).stdout.splitlines()[1])['number'] == 2
    done = rp_run('--keep-order', *words)
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first['number'], first['state'], first['stdout']) == (1, 'DONE', '0\n')
    assert (second['state'], second['exit_code'], second['stderr']) == ('FAILED', 3, 'error\n')
    assert done.returncode == 1


@pytest.mark.usefixtures('environment')
def test_resume_runs_what_is_missing(base: Path) -> None:
    words = ['--shell', 'echo {}; echo {} >> ran; test {} != b -o -e fixed', ':::', 'a', 'b', 'c']
    assert rp_run(*words).returncode == 1
    (base / 'fixed').touch()
    done = rp_run('--resume', *words)
    assert (done.returncode, done.stdout) == (0, 'b\n')
    assert sorted((base / 'ran').read_text().split()) == ['a', 'b', 'b', 'c']
    done = rp_run('--resume', *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
    assert rp_run('--joblog', 'log', 'true', ':::', '1').returncode == 0
    assert (base / 'log').read_text().splitlines()[1].endswith('\t0\t0\ttrue 1')


@pytest.mark.usefixtures('environment')
def test_outputs_are_passed_as_bytes(base: Path) -> None:
    (base / 'data').write_bytes(bytes(range(256)))
    for redirected in ('', ' >&2'):
        done = subprocess.run([*RP, '--shell', f'cat {{}}{redirected}', ':::', 'data'], capture_output=True, check=True,
                              timeout=100, env={**os.environ, 'PYTHONIOENCODING': 'utf-8:strict'})
        assert done.stdout + done.stderr == bytes(range(256))


@pytest.mark.parametrize('options', [[], ['--ranks', '2']])
@pytest.mark.usefixtures('environment')
def test_tasks_run_in_any_directory_and_leave_nothing_there(
        base: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    here = base / "a {1} '$HOME'"
    here.mkdir()
    monkeypatch.chdir(here)
    done = rp_run(*options, 'pwd', ':::', '-P')
    assert (done.returncode, set(done.stdout.splitlines())) == (0, {os.path.realpath(here)})
    assert not list(here.iterdir())


@pytest.mark.usefixtures('environment')
def test_output_that_cannot_be_written_ends_the_run() -> None:
    with open('/dev/full', 'wb') as full:
        done = subprocess.run([*RP, '--joblog', 'log', 'echo', ':::', '1', '2'], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (1, 'rp run: [Errno 28] No space left on device\n')
    with subprocess.Popen([*RP, '--shell', ': {}; echo; yes | head -n 100000', ':::', '1', '2'], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == ('', 1)


@pytest.mark.parametrize(('closed', 'words', 'shown'), [
    ('>&-', [], True), ('2>&-', [], False), ('>&- 2>&-', [], False), ('>&-', ['--dry-run'], True)])
@pytest.mark.usefixtures('environment')
def test_closed_streams_are_an_error_before_anything_runs(
        base: Path, closed: str, words: list[str], shown: bool) -> None:
    command = ['/bin/sh', '-c', f'exec "$@" {closed}', 'sh', *RP, *words, 'touch', ':::', 'ran']
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, 'standard output or standard error is closed' in done.stderr) == (1, shown)
    assert not (base / 'ran').exists()


def kill_after(base: Path, count: int, *words: str) -> None:
    """Start `rp run`, and kill it when so many tasks have said that they have started."""
    with subprocess.Popen([*RP, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: len(list(base.glob('log.*'))) >= count)
        process.kill()


STEPS = '--shell', 'echo start {} >> log.{}; while [ ! -e go ]; do sleep 0.05; done; echo out {}; exit $(({} == 3))'


@pytest.mark.parametrize('order', [[], ['--keep-order']])
@pytest.mark.usefixtures('environment')
def test_resume_goes_on_with_what_still_runs(base: Path, order: list[str]) -> None:
    """No task runs twice if `rp run` was killed, whether it has ended, runs or waits then."""
    words = [*order, *STEPS, ':::', *'123456']
    kill_after(base, 2, *words)
    refused = rp_run(*words)
    assert refused.returncode == 1
    assert re.search(r'goes on without its process, in the session \S+ .*\n.*rp run --resume --cores 2 .*\n'
                     r'.*rp run --force --cores 2 ', refused.stderr)
    listed = subprocess.run([sys.executable, '-m', 'rp_client.cli', 'session', 'list'], capture_output=True, text=True,
                            cwd='/', timeout=60, check=True).stdout
    assert re.search(r'rp\.session\.\S+ .* orphaned ', listed)
    (base / 'go').touch()
    done = rp_run('--resume', *words)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (1, [f'out {number}' for number in range(1, 7)])
    assert not order or done.stdout.splitlines() == [f'out {number}' for number in range(1, 7)]
    assert [(base / f'log.{number}').read_text() for number in range(1, 7)] == [
        f'start {number}\n' for number in range(1, 7)]
    done = rp_run('--resume', *words)   # the failed one alone
    assert (done.returncode, done.stdout, (base / 'log.3').read_text()) == (1, 'out 3\n', 'start 3\n' * 2)
    assert not list(Path(tempfile.gettempdir()).glob('rp-run.*'))


@pytest.mark.usefixtures('environment')
def test_resume_finds_the_ends_that_it_has_missed(base: Path) -> None:
    """When all tasks have ended, and their pilot too."""
    words = [*STEPS, ':::', *'123']
    kill_after(base, 2, *words)
    (base / 'go').touch()
    directory, = Path(tempfile.gettempdir()).glob('rp-run.*/*/hub.db')
    wait_until(lambda: summary(directory.parent).tasks == {'DONE': 2, 'FAILED': 1})
    done = rp_run('--resume', *words)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (1, ['out 1', 'out 2', 'out 3'])
    assert (base / 'log.1').read_text() == 'start 1\n'


@pytest.mark.usefixtures('environment')
def test_force_ends_what_still_runs(base: Path) -> None:
    words = [*STEPS, ':::', *'1234']
    kill_after(base, 2, *words)
    first = [path.name for path in base.glob('log.*')]
    (base / 'go').touch()
    # a run that has its process is ended, too
    done = rp_run('--force', *words)
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 4)
    assert (base / first[0]).read_text().count('start') == 2
    assert rp_run('--resume', '--force', *words).returncode == 2
    assert not list(Path(tempfile.gettempdir()).glob('rp-run.*'))


@pytest.mark.usefixtures('environment')
def test_lines_of_standard_input_and_retries(base: Path) -> None:
    done = rp_run('-k', '--retries', '2', '--shell', 'echo x >> tries; test $(wc -l < tries) -gt 1 && echo {}',
                  text='one two\n')
    assert (done.returncode, done.stdout) == (0, 'one two\n')


@pytest.mark.usefixtures('environment')
def test_program_that_is_not_there() -> None:
    done = rp_run('no-such-program', ':::', 'a')
    assert done.returncode == 1
    assert done.stderr.startswith('rp run: no-such-program a: executable not found: no-such-program (searched PATH ')
    assert '\nrp run: 1 task failed; ' in done.stderr


@pytest.mark.usefixtures('environment')
def test_reasons_that_are_no_exit_code() -> None:
    done = rp_run('-k', '--timeout', '1', 'sh', '-c', ':::', 'exit 3', 'kill -9 $$', 'sleep 1000')
    assert done.returncode == 3
    assert [line.rpartition(': ')[2] for line in done.stderr.splitlines()[:2]] == [
        'killed by signal 9 (SIGKILL)', 'the task ran longer than 1 s']
    assert done.stderr.startswith("rp run: sh -c 'kill -9 $$': ")
    assert done.stderr.count('\n') == 3


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.usefixtures('environment')
def test_interruption_ends_all(base: Path, number: int, code: int) -> None:
    with subprocess.Popen([*RP, '--shell', 'touch started.{}; sleep 100{}', ':::', '1', '2'], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: (base / 'started.1').exists() and (base / 'started.2').exists())
        os.kill(process.pid, number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert '--resume' in errors
    wait_until(lambda: not processes_with(str(base)))


@pytest.mark.usefixtures('environment')
def test_outputs_that_wait_for_their_turn_are_shown_before_an_interruption(base: Path) -> None:
    words = ['--keep-order', '--shell', 'touch started.{}; test {} = 1 -a ! -e fixed && sleep 1000; echo {}', ':::',
             '1', '2', '3']
    with subprocess.Popen([*RP, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: (base / 'started.1').exists() and (base / 'started.3').exists())
        os.kill(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    (base / 'fixed').touch()
    done = rp_run('--resume', *words)
    assert done.returncode == 0
    assert sorted((output + done.stdout).split()) == ['1', '2', '3']
    assert done.stdout.startswith('1\n')


@pytest.mark.usefixtures('environment')
def test_wrong_usage() -> None:
    for words in ([':::', 'a'], ['--cores', '0', 'echo', ':::', 'a'], ['echo', '{3}', ':::', 'a'],
                  ['--resum', 'echo', ':::', 'a']):   # the name of the journal depends on the options
        assert rp_run(*words).returncode == 2
