"""What `rp run` does with the ends of its tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

import pytest
from client_support import Engine

from rp_api import states
from rp_api.description.task import TaskDescription
from rp_api.errors import OwnershipError, PilotError
from rp_client.cli.runs.joblog import Joblog
from rp_client.cli.runs.run_file import RunFile, RunningElsewhere
from rp_client.cli.runs.run_inputs import Job
from rp_client.cli.runs.run_tasks import _pass, _Run
from rp_client.handles.pilot import Pilot
from rp_client.handles.task_manager import TaskManager

DESCRIPTION = TaskDescription({'executable': 'echo', 'arguments': ['{1}']})


class Ends:
    """Takes the place of a task manager and its pilot: what happens is what the test says."""

    def __init__(self, happen: Callable[[Ends], None]) -> None:
        self._owner = SimpleNamespace(engine=Engine())
        self._happen = happen
        self._told: list[Callable[..., Any]] = []
        self.rows: list[Any] = []

    def register_callback(self, callback: Callable[..., Any]) -> None:
        self._told.append(callback)

    def unregister_callback(self, callback: Callable[..., Any]) -> None:
        self._told.remove(callback)

    def submit_sweep(self, _: TaskDescription, rows: Iterable[Any]) -> list[Any]:
        self.rows = list(rows)
        self._happen(self)
        return self.rows

    def end(self, task: Ended) -> None:
        for callback in self._told:
            callback(task, task.state)

    def break_down(self) -> None:
        for callback in self._owner.engine.on_broken:
            callback(ValueError('a defect'))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Joblog]:
    made = Joblog(tmp_path / 'log', resume=False)
    yield made
    made.close()


def run(log: Joblog, happen: Callable[[Ends], None], *words: str) -> int:
    ends = Ends(happen)
    jobs = iter([Job(number, ['echo', word]) for number, word in enumerate(words, 1)])
    return _Run(cast(Pilot, ends), cast(TaskManager, ends), log, keep_order=False).run(DESCRIPTION, jobs, [1], None)


def test_session_that_fails_ends_the_run(log: Joblog) -> None:
    with pytest.raises(PilotError, match='the session cannot go on: a defect; the same command with --resume goes on'):
        run(log, Ends.break_down, 'a', 'b')


class Ended:
    """Takes the place of a task that is DONE."""

    state, error, exit_code = states.DONE, None, 0

    def __init__(self, number: int, output: str | PilotError) -> None:
        self.uid = f'sweep.0000.{number:06d}'
        self.description = TaskDescription({'name': str(number + 1), 'executable': 'echo', 'arguments': [str(number)]})
        self._output = output

    def open_stdout(self) -> BinaryIO:
        if isinstance(self._output, PilotError):
            raise self._output
        return BytesIO(self._output.encode())

    open_stderr = open_stdout


def test_output_that_cannot_be_fetched_fails_its_task_only(log: Joblog, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not noted, so `--resume` runs the task again."""
    def happen(ends: Ends) -> None:
        ends.end(Ended(0, PilotError('no way there')))
        ends.end(Ended(1, 'text\n'))

    assert run(log, happen, '0', '1') == 1
    assert capsys.readouterr() == ('text\n', 'rp run: no way there\ntext\n')
    assert [line.split('\t')[-1] for line in log.path.read_text().splitlines()[1:]] == ['echo 1']


def test_output_passes_in_pieces() -> None:
    """An output of any size, also with characters that two pieces share and bytes that are no text."""
    class Output(BytesIO):
        most = 0

        def read(self, size: int | None = -1, /) -> bytes:
            assert size is not None
            assert size > 0
            self.most = max(self.most, size)
            return super().read(3)

    text = 'aä€b' * 100
    with Output(text.encode() + b'\xff') as output:
        passed = BytesIO()
        stream = TextIOWrapper(passed, encoding='utf-8', errors='surrogateescape')
        _pass(output, stream)
        assert output.most <= 1 << 20
        assert passed.getvalue() == text.encode() + b'\xff'


def lock(path: Path) -> subprocess.Popen[bytes]:
    """A process that has the file of a journal, and leaves with exit code 7 after SIGTERM."""
    program = f"""
import signal, sys
from pathlib import Path
from rp_client.cli.runs.run_file import RunFile
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
file = RunFile(Path({str(path)!r}), force=False)
file.write('/its/base', 'uid')
print(flush=True)
signal.pause()
"""
    process = subprocess.Popen([sys.executable, '-c', program], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    return process


def test_one_process_has_a_journal(tmp_path: Path) -> None:
    path = tmp_path / 'log'
    with lock(path) as process:
        with pytest.raises(RunningElsewhere, match=f'process {process.pid} on {os.uname().nodename}'):
            RunFile(path, force=False)
        with closing(RunFile(path, force=True)) as file:
            assert process.wait(30) == 7
            assert (file.base, file.uid) == ('/its/base', 'uid')
            with pytest.raises(RunningElsewhere):
                RunFile(path, force=False)
    with closing(RunFile(path, force=False)) as file:   # its session is known until it has ended
        assert file.base == '/its/base'
        file.write('', '')
    assert list(tmp_path.iterdir()) == []


def test_process_that_was_killed_has_no_journal(tmp_path: Path) -> None:
    with lock(tmp_path / 'log') as process:
        process.kill()
        process.wait()
    with closing(RunFile(tmp_path / 'log', force=False)) as file:
        assert file.uid == 'uid'
    (tmp_path / 'log.run').write_text('no JSON')
    with closing(RunFile(tmp_path / 'log', force=False)) as file:
        assert (file.base, file.uid) == ('', '')
    (tmp_path / 'log.run').touch()
    (tmp_path / 'log.run').chmod(0o666)
    with pytest.raises(OwnershipError):
        RunFile(tmp_path / 'log', force=False)


def test_journal_knows_failures_of_earlier_processes_and_all_ends_of_this_one(tmp_path: Path) -> None:
    jobs = [Job(number, ['echo', str(number)]) for number in range(3)]
    with closing(Joblog(tmp_path / 'log', resume=False)) as log:
        log.add(jobs[0], 0)
        log.add(jobs[1], 3)
        assert not log.has(jobs[0])   # the same command may be there twice
    with closing(Joblog(tmp_path / 'log', resume=True)) as log:
        assert [log.has(job) for job in jobs] == [True, False, False]
        assert [log.knew(job) for job in jobs] == [True, True, False]
        log.add(jobs[2], 1)
        assert [log.has(job) for job in jobs] == [True, False, True]
