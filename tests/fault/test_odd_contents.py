"""Sandboxes and files that nobody has foreseen: every task ends with a reason, and the pilot goes on as if nothing was.

Directories by the thousand one in the other, what cannot be opened or read to its end, links in circles, names that are
no text, in what tasks leave and in what is staged, on both sides.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import odd_contents
import pytest
from conftest import Run, wait_until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import radical.pilot as rp

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600),
              pytest.mark.disorder('tasks remove their own profiles')]
PROGRAM = str(Path(odd_contents.__file__))
TIMEOUT = 120


@pytest.fixture(scope='module', autouse=True)
def directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of the client, with one of each odd thing; nothing is left in the end, as pytest could not remove it.
    """
    path = tmp_path_factory.mktemp('odd')
    subprocess.run([sys.executable, PROGRAM, *odd_contents.THINGS], cwd=path, check=True, timeout=TIMEOUT)
    yield path
    subprocess.run(['rm', '-rf', path, *tmp_path_factory.getbasetemp().glob('shared*')], check=True, timeout=TIMEOUT)


def leaving(*kinds: str, **description: Any) -> rp.TaskDescription:
    """A task that leaves these things."""
    return rp.TaskDescription({'executable': sys.executable, 'arguments': [PROGRAM, *kinds], 'timeout': 60.0,
                               'pre_exec_sync': False} | description)


def all_is_well(run: Run, *tasks: rp.Task) -> None:
    """Fail unless these tasks end, each that did not succeed with a reason, and others run afterwards."""
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=TIMEOUT)
    for task in tasks:
        assert task.state in rp.FINAL, f'{task.uid} {task.description} is {task.state}'
        assert task.state == rp.DONE or task.exception, f'{task.uid} {task.description} has no reason'
    assert run.pilot.state == rp.PMGR_ACTIVE, run.pilot.exception
    assert run.one(executable='/bin/echo', arguments=['well']).stdout == 'well\n'


def directive(source: object, target: object, action: str, **values: Any) -> dict[str, Any]:
    return {'source': str(source), 'target': str(target), 'action': action} | values


@pytest.mark.parametrize('cleanup', [False, True])
@pytest.mark.parametrize('kind', [*odd_contents.THINGS, *odd_contents.ENDS])
def test_whatever_a_task_leaves(shared: Run, kind: str, cleanup: bool) -> None:
    task = shared.tmgr.submit_tasks(leaving(kind, cleanup=cleanup))
    all_is_well(shared, task)
    assert task.exit_code == {'failing': 3, 'killed': -9}.get(kind, 0), task.stderr
    assert task.state == (rp.FAILED if task.exit_code else rp.DONE)
    if cleanup and kind != 'a_file':
        assert not os.path.lexists(str(task.sandbox))
    if kind == 'elsewhere':
        assert Path(str(task.sandbox)).with_name('precious').joinpath('file').exists()


DEEP = [(action, 'task:///there' if action == rp.TARBALL else place)
        for action, place in ((rp.TRANSFER, 'task:///there'), (rp.TARBALL, 'task:///there'), (rp.COPY, 'task:///there'),
                              (rp.LINK, 'task:///there'), (rp.COPY, 'pilot:///in.deep'))]


@pytest.mark.parametrize(('action', 'target'), DEEP)
def test_deep_tree_is_staged_in(shared: Run, directories: Path, action: str, target: str) -> None:
    source = f'endpoint://{directories}/deep' if action in (rp.COPY, rp.LINK) else f'{directories}/deep'
    task = shared.tmgr.submit_tasks(rp.TaskDescription({
        'executable': 'find', 'arguments': [f'{place_of(shared, target)}/', '-name', 'bottom', '-printf', '%d'],
        'input_staging': directive(source, target, action), 'cleanup': True}))
    all_is_well(shared, task)
    assert (task.state, task.stdout) == (rp.DONE, str(odd_contents.DEPTH + 1)), (task.exception, task.stderr)


def place_of(run: Run, url: str) -> str:
    """The path that a task knows a URL by."""
    scheme, _, name = url.partition(':///')
    return name if scheme == 'task' else f'{run.pilot.pilot_sandbox}/{name}'


@pytest.mark.parametrize(('action', 'target'), [
    (rp.TRANSFER, 'client:///{}'), (rp.COPY, 'pilot:///{}'), (rp.MOVE, 'pilot:///{}'), (rp.LINK, 'pilot:///{}')])
def test_deep_tree_is_staged_out(shared: Run, action: str, target: str) -> None:
    name = f'out.{action}'.lower()
    task = shared.tmgr.submit_tasks(leaving('deep', cleanup=action != rp.LINK, output_staging=directive(
        'task:///deep', target.format(name), action)))
    all_is_well(shared, task)
    assert task.state == rp.DONE, (task.exception, task.stderr)
    base = shared.session.client_sandbox if target.startswith('client') else shared.pilot.pilot_sandbox
    found = subprocess.run(['find', f'{base}/{name}/', '-name', 'bottom', '-printf', '%d'], capture_output=True,
                           text=True, timeout=TIMEOUT, check=True)
    assert found.stdout == str(odd_contents.DEPTH + 1)


def test_pilot_is_cleaned_up(shared: Run) -> None:
    """A pilot that is told to removes what its tasks have left, whatever that is."""
    pilot = shared.pmgr.submit_pilots(rp.PilotDescription({
        'resource': 'local.exact', 'cores': 4, 'runtime': 10, 'cleanup': True,
        'sandbox': str(Path(shared.session.base))}))
    other = rp.TaskManager(shared.session)
    other.add_pilots(pilot)
    tasks = other.submit_tasks([leaving(kind) for kind in (*odd_contents.THINGS, 'forbidden', 'replaced')])
    other.wait_tasks(timeout=TIMEOUT)
    assert {task.state for task in tasks} == {rp.DONE}
    pilot.cancel()
    assert pilot.wait(timeout=TIMEOUT) == rp.CANCELED, pilot.exception
    # the agent keeps what says which process it is until all results are delivered
    wait_until(lambda: not os.path.lexists(pilot.pilot_sandbox), what='the sandbox to be removed')
    other.close()


# anything together with anything

texts = st.text(max_size=12) | st.sampled_from([
    '', '\0', '\n', '\udcff', '$HOME', '`id`', '../..', '/', '.', 'a' * 300])
things = st.sampled_from(list(odd_contents.THINGS))


@st.composite
def outputs(draw: st.DrawFn) -> dict[str, Any]:
    """Something odd is staged out, to a place of which there may be several opinions."""
    return directive(f'task:///{draw(things)}', draw(st.sampled_from([
        'pilot:///fuzz/x', 'pilot:///fuzz/', 'task:///y', 'client:///fuzz.out/x', 'task:///../z'])),
        draw(st.sampled_from([rp.TRANSFER, rp.COPY, rp.LINK, rp.MOVE])))


@st.composite
def inputs(draw: st.DrawFn) -> dict[str, Any]:
    """Something odd is staged in, but for a file without an end, and nothing that others need is moved."""
    thing = draw(things.filter(lambda name: name != 'sparse'))
    return directive(f'endpoint:///ODD/{thing}', draw(st.sampled_from([
        'task:///', 'task:///x', 'task:///d/e/f', 'pilot:///fuzz.in/x'])),
        draw(st.sampled_from([rp.COPY, rp.LINK, rp.TRANSFER, rp.TARBALL])))


descriptions = st.fixed_dictionaries(
    {'kinds': st.lists(things.filter(lambda name: name != 'sparse'), unique=True, max_size=3).flatmap(
        lambda found: st.sampled_from(['', *odd_contents.ENDS]).map(lambda end: [*found, *([end] if end else [])]))},
    optional={
        'cleanup': st.booleans(), 'stage_on_error': st.booleans(), 'output_staging': st.lists(outputs(), max_size=2),
        'input_staging': st.lists(inputs(), max_size=2), 'stdout': texts, 'stderr': texts, 'name': texts,
        'sandbox': texts.filter(lambda text: '..' not in text and text[:1] != '/'),
        'pre_exec': st.lists(st.sampled_from(
            ['true', 'exit 3', 'cd /', 'echo "', 'exec true', 'kill -9 $$']), max_size=1),
        'environment': st.dictionaries(texts, texts, max_size=2), 'ranks': st.sampled_from([1, 2, 9]),
        'use_mpi': st.just(False), 'startup_timeout': st.sampled_from([0.0, 30.0]),
        'priority': st.integers(-2**70, 2**70), 'timeout': st.sampled_from([0.0, 1e-9, 30.0, 1e300])})


@pytest.mark.long
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(descriptions, min_size=1, max_size=8))
def test_any_tasks(shared: Run, directories: Path, wanted: list[dict[str, Any]]) -> None:
    """A description may be refused; what was taken ends."""
    tasks = []
    for values in wanted:
        staged = [{**each, 'source': each['source'].replace('/ODD', str(directories))}
                  for each in values.get('input_staging', ())]
        description = {name: value for name, value in values.items() if name != 'kinds'} | {'input_staging': staged}
        with suppress(ValueError):
            tasks.append(shared.tmgr.submit_tasks(leaving(*values['kinds'], **description)))
    all_is_well(shared, *tasks)
