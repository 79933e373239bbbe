"""What `rp run` does with the ends of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from client_support import Engine

from rp_api import states
from rp_api.description.task import TaskDescription
from rp_api.errors import PilotError
from rp_client.cli.joblog import Joblog
from rp_client.cli.run_inputs import Job
from rp_client.cli.run_tasks import _Run
from rp_client.pilot import Pilot
from rp_client.task_manager import TaskManager

DESCRIPTION = TaskDescription({'executable': 'echo', 'arguments': ['{1}']})


class Ends:
    """Takes the place of a task manager and its pilot: what happens is what the test says."""

    def __init__(self, happen: Callable[[Ends], None]) -> None:
        self._engine = Engine()
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
        for callback in self._engine.on_broken:
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
        self.description = TaskDescription({'executable': 'echo', 'arguments': [str(number)]})
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
