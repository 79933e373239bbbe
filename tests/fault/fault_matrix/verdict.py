"""What was lost in a run: the tasks as the application has them, as callbacks told them, as they are stored."""

from __future__ import annotations

import json
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
    """One sentence for each thing that is not as it has to be; `agent_dies` if tasks may fail with their pilot."""
    with open(run.config['results']) as file:
        results = json.load(file)
    found = list(_numbers(results['tasks'], run))
    for number in range(run.size.tasks):
        result = results['tasks'].get(workload.uid(number))
        if result is not None:
            found += _task(number, result, run, agent_dies)
    found += _callbacks(results['tasks'], run)
    return found + list(_stored(results['tasks'], run))


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
    went_with_pilot = (agent_dies and not free and got.state == rp.FAILED and got.exit_code is None
                       and str(result['pilot']) in result['exception'])
    if got != wanted and not went_with_pilot:
        yield f'{uid} ended as {tuple(got)} instead of {tuple(wanted)}: {result["exception"]}'
    if not 1 <= result['attempts'] <= (ATTEMPTS if free else 1):
        yield f'{uid} had {result["attempts"]} attempts'
    if config['spawner'] == workload.REAL:
        runs = workload.runs(config['marks'], uid)
        if runs > (result['attempts'] if free else 1) or (not runs and not went_with_pilot):
            yield f'{uid} ran {runs} times in {result["attempts"]} attempts'


def _callbacks(results: dict[str, Any], run: Run) -> Iterator[str]:
    """No application is told twice; what was told is what is true; what nobody was told, the objects tell."""
    for path in run.directory.glob('told.*'):
        told = [line.split() for line in path.read_text().splitlines()]
        uid, count = Counter(uid for uid, _ in told).most_common(1)[0] if told else ('', 0)
        if count > 1:
            yield f'{path.name}: {uid} was told to be final {count} times'
        wrong = [(uid, state) for uid, state in told if results.get(uid, {}).get('state') != state]
        if wrong:
            yield f'{path.name}: {len(wrong)} tasks were told to be what they are not, {wrong[0]} for example'


def untold(run: Run) -> int:
    """Number of tasks of whose end no callback has told: the application died between hearing of it and telling."""
    told = {line.split()[0] for path in run.directory.glob('told.*') for line in path.read_text().splitlines()}
    return run.size.tasks - len(told)


def _stored(results: dict[str, Any], run: Run) -> Iterator[str]:
    stored = Counter(_database_rows(run) if run.backend == 'mongodb' else _file_rows(run))
    objects = Counter((uid, result['state']) for uid, result in results.items())
    if stored != objects:
        yield (f'what is stored differs from the objects: {list((stored - objects).items())[:3]} instead of '
               f'{list((objects - stored).items())[:3]}')


def _file_rows(run: Run) -> Iterator[tuple[str, str]]:
    return ((row['uid'], row['state']) for row in read_results(run.session_path))


def _database_rows(run: Run) -> Iterator[tuple[str, str]]:
    from rp_api.coordination.mongodb import admin  # needs pymongo

    rows = admin.export(run.database.url, run.config['uid'])
    return ((row['_id'], row['state']) for row in rows if row['type'] == 'task')
