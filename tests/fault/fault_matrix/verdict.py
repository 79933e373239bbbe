"""What was lost in a run: the tasks as the application has them, as callbacks told them, as they are stored."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import radical.pilot as rp
from fault_matrix import workload
from fault_matrix.run import Run
from rp_api.coordination.results import read_results

ATTEMPTS = 3
"""Most pilots that a restartable task is given to."""


def losses(run: Run, *, agent_dies: bool) -> list[str]:
    """One sentence for each thing that is not there, or not as it has to be.

    `agent_dies` if tasks may fail with their pilot. What happened too often is told by `repeated`.
    """
    results = _results(run)
    found = list(_numbers(results, run))
    for number in range(run.size.tasks):
        result = results.get(workload.uid(number))
        if result is not None:
            found += _task(number, result, run, agent_dies)
    return found


def _results(run: Run) -> dict[str, Any]:
    """How the tasks ended, as the application has found it."""
    with open(run.config['results']) as file:
        results: dict[str, Any] = json.load(file)['tasks']
    return results


def _numbers(results: dict[str, Any], run: Run) -> Iterator[str]:
    wanted = {workload.uid(number) for number in range(run.size.tasks)}
    missing, more = sorted(wanted - set(results)), sorted(set(results) - wanted)
    if missing:
        yield f'{len(missing)} tasks are missing, {missing[0]} for example'
    if more:
        yield f'{len(more)} tasks that nobody has submitted, {more[0]} for example'


def _task(number: int, result: dict[str, Any], run: Run, agent_dies: bool) -> Iterator[str]:
    config = run.config
    uid, free = workload.uid(number), workload.restartable(number, config)
    wanted = workload.ending(number, config['spawner'])
    got = workload.Ending(result['state'], result['exit_code'], result['stdout'])
    # the batch system's signal to its job may have ended it before its agent knew
    went_with_pilot = (agent_dies and not free and got.state == rp.FAILED and (got.exit_code or -1) < 0
                       and str(result['pilot']) in result['exception'])
    if got != wanted and not went_with_pilot:
        yield f'{uid} ended as {tuple(got)} instead of {tuple(wanted)}: {result["exception"]}'
    if config['kind'] == workload.STAGED and not went_with_pilot:
        yield from _file(uid, workload.output(config['outputs'], uid))
    # its pilot may have died before the task was on its way there
    if not (0 if went_with_pilot else 1) <= result['attempts'] <= (ATTEMPTS if free else 1):
        yield f'{uid} had {result["attempts"]} attempts'
    if config['spawner'] == workload.REAL and not workload.runs(config['marks'], uid) and not went_with_pilot:
        yield f'{uid} never ran'
    if os.path.exists(workload.early(config['marks'], uid)):
        yield f'{uid} started before the end of the task that it is after'


def _file(uid: str, path: str) -> Iterator[str]:
    size = os.path.getsize(path) if os.path.exists(path) else 0
    if size != workload.FILE_SIZE:
        yield f'{uid} brought back {size} bytes instead of {workload.FILE_SIZE}'


def repeated(run: Run, calls: bool = False) -> list[str]:
    """One sentence for each task that ran more often than it may; `calls` if they may be made again, as ranks died.

    An executor that takes over from one that was killed runs the programs again that have failed.
    """
    found = []
    for uid, result in _results(run).items():
        number = int(uid.rpartition('.')[2])
        again = len(told(run)) - 1 if run.config['kind'] == workload.EXECUTOR and result['exit_code'] else 0
        most = result['attempts'] + result['losses'] + calls if workload.restartable(number, run.config) or calls else 1
        runs = workload.runs(run.config['marks'], uid)
        if runs > most + again:
            found.append(f'{uid} ran {runs} times in {result["attempts"]} attempts')
    return found


def contradictions(run: Run) -> list[str]:
    """One sentence for each thing that callbacks were told wrongly: an end twice, or one that is not true."""
    return list(_contradictions(_results(run), run))


def _contradictions(results: dict[str, Any], run: Run) -> Iterator[str]:
    for name, states in told(run).items():
        final = [(uid, state) for uid, state in states if state in rp.FINAL]
        uid, count = Counter(uid for uid, _ in final).most_common(1)[0] if final else ('', 0)
        if count > 1:
            yield f'{name}: {uid} was told to be final {count} times'
        wrong = [(uid, state) for uid, state in final if results.get(uid, {}).get('state') != state]
        if wrong:
            yield f'{name}: {len(wrong)} tasks were told to be what they are not, {wrong[0]} for example'


def untold(run: Run) -> int:
    """Number of tasks of whose end no callback was told."""
    heard = {uid for states in told(run).values() for uid, state in states if state in rp.FINAL}
    return run.size.tasks - len(heard)


def told(run: Run) -> dict[str, list[tuple[str, str]]]:
    """The states that callbacks of each application were told: (uid, state), in order."""
    return {path.name: [(uid, state) for uid, state in map(str.split, path.read_text().splitlines())]
            for path in run.directory.glob('told.*')}


def wrongly_stored(run: Run) -> list[str]:
    """A sentence if the states that are stored are not those that the application has found."""
    stored = Counter(_database_rows(run) if run.backend == 'mongodb' else _file_rows(run))
    objects = Counter((uid, result['state']) for uid, result in _results(run).items())
    if stored == objects:
        return []
    return [(f'what is stored differs from the objects: {list((stored - objects).items())[:3]} instead of '
             f'{list((objects - stored).items())[:3]}')]


def _file_rows(run: Run) -> Iterator[tuple[str, str]]:
    return ((name, row['state']) for row in read_results(run.session_path) if (name := workload.name(row['uid'])))


def _database_rows(run: Run) -> Iterator[tuple[str, str]]:
    from rp_api.coordination import mongodb  # needs pymongo
    from rp_api.coordination.mongodb.records import DatabaseRecords

    url, uid = run.database.url, run.config['uid']
    collection = next(place for name, place, _ in mongodb.places(url) if name == uid)
    with DatabaseRecords(url, collection) as records:
        yield from ((task['uid'], task['state']) for _, task in records.tasks())
