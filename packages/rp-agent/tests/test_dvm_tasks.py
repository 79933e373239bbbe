"""Tasks that are launched into DVMs, with programs that answer as `prte` and `prun` do as far as the agent sees it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backend_support import twice
from executor_support import Harness, said, sh
from launch_support import is_gone, none_left
from launcher_support import program
from leftovers import open_descriptors

from rp_agent.executor.launching.environment import NodePorts
from rp_agent.executor.launching.launchers import Launchers
from rp_agent.executor.popen import dvms
from rp_agent.executor.popen.component import Executor
from rp_api import states
from rp_api.loop.offload import Helpers
from rp_profiling.write.tracer import Tracer

# the number of its process is in its address
PRTE = '''
test ! -e "${0%/*}/no-dvm" || { echo 'no daemon could be started' >&2; exit 1; }
echo "prterun-host-$$@0;tcp4://127.0.0.1:4242"
echo "DVM ready"
echo $$ >>"${0%/*}/dvms"
trap 'exit 1' TERM
while :; do sleep 0.05; done
'''

# --dvm-uri URI --np N ... PROGRAM ARGUMENT; ranks are killed when the DVM is gone
PRUN = '''
case "$1" in (--version) echo 'prun (PRRTE) 3.0.2'; exit 0 ;; esac
echo "$*" >>"${0%/*}/calls"
dvm=${2%%@*}; dvm=${dvm##*-}; ranks=$4
until case $1 in (/bin/sh | */rp-rank) ;; (*) false ;; esac; do shift; done
test -z "$(cat "${0%/*}/hangs" 2>/dev/null)" || { rm "${0%/*}/hangs"; exec sleep 1000; }
kill -0 "$dvm" || exit 1
pids=; rank=0
while test "$rank" -lt "$ranks"; do
    PMIX_RANK=$rank "$@" & pids="$pids $!"; rank=$((rank + 1))
done
trap 'kill -TERM $pids; exit 143' TERM
while kill -0 $pids; do
    kill -0 "$dvm" || { kill -KILL $pids; exit 1; }
    sleep 0.02
done 2>/dev/null
code=0
for pid in $pids; do wait "$pid" || code=$?; done
test -z "$(cat "${0%/*}/stays" 2>/dev/null)" || { rm "${0%/*}/stays"; exec sleep 1000; }
exit "$code"
'''


class Bench(Harness):
    """An executor whose launch method is PRTE, on so many nodes, and as many DVMs."""

    def __init__(self, path: Path, nodes: int = 1, method: str = 'PRTE', ports: NodePorts | None = None,
                 **options: Any) -> None:
        self.bin = path / 'bin'
        for name, text in (('prte', PRTE), ('prun', PRUN)):
            program(self.bin / name, text)
        for name in ('env', 'sleep', 'cat', 'rm'):
            (self.bin / name).symlink_to(f'/usr/bin/{name}')
        super().__init__(path)
        self.executor.close()
        self._helpers = Helpers(self.loop)
        platform = {'launch_methods': {'order': [method], method: {'dvm_count': nodes, **options}}}
        setting = {'nodes': ['localhost'] * nodes, 'cores_per_node': 4}
        launchers = Launchers(platform, setting, {'PATH': str(self.bin)}, str(path), self._helpers.run)
        self.context = self.context._replace(launchers=launchers, ports=ports or NodePorts())
        self.tracer = Tracer(path / 'dvm.prof', 'agent_executing.0000')
        self.executor = Executor('agent_executing.0000', self.tracer, self.loop, self.context, grace=0.5)
        self.executor.output = self._take
        self.executor.advanced = lambda tasks, state: None

    def task(self, uid: str = 'task.000000', *, node: int = 0, **description: Any) -> Any:
        task = super().task(uid, **{'ranks': 2, **description})
        for slot in task.slots or ():
            slot['node_index'] = node
        return task

    def dvms(self) -> list[int]:
        """The process numbers of all DVMs that were started."""
        path = self.bin / 'dvms'
        return list(map(int, path.read_text().split())) if path.exists() else []

    def calls(self) -> int:
        """How often the launcher was started."""
        return len((self.bin / 'calls').read_text().splitlines())

    def rows(self, uid: str) -> list[list[str]]:
        """What was recorded on an entity."""
        self.tracer.flush()
        rows = [line.split(',') for line in (self.path / 'dvm.prof').read_text().splitlines()]
        return [row for row in rows if row[4] == uid]

    def close(self) -> None:
        self.executor.check()
        self.executor.close()
        self._helpers.close(10)
        self.loop.close()


Make = Callable[..., Bench]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    before = open_descriptors()
    made: list[Bench] = []

    def make(nodes: int = 1, **options: Any) -> Bench:
        made.append(Bench(tmp_path, nodes, **options))
        return made[-1]

    yield make
    for harness in made:
        harness.close()
        assert all(map(is_gone, harness.dvms()))
        none_left(harness)
    assert open_descriptors() <= before


def test_a_task(make: Make) -> None:
    harness = make()
    task = harness.run_one(**sh('echo $RP_RANK of $RP_RANKS'))
    assert task.target_state == states.DONE, task.exception_detail
    assert sorted((Path(task.sandbox) / f'{task.uid}.out').read_text().splitlines()) == ['0 of 2', '1 of 2']
    assert f'--dvm-uri \'prterun-host-{harness.dvms()[0]}@0;tcp4' in task.extra['launch']['launch_command']
    more = harness.task('more')
    harness.run(more)
    assert len(harness.dvms()) == 1
    harness.stop()
    assert all(map(is_gone, harness.dvms()))
    assert [(row[1], row[6]) for row in harness.rows('pilot.0000')] == [
        (event, 'dvm_id=0') for event in ('dvm_start', 'dvm_uri', 'dvm_ready', 'dvm_stop')]


def test_a_task_goes_to_the_dvm_that_has_its_nodes(make: Make) -> None:
    harness = make(2)
    tasks = [harness.task(f'task.{node}', node=node) for node in (0, 1)]
    harness.run(*tasks)
    commands = [task.extra['launch']['launch_command'] for task in tasks]
    assert len({command.split("'")[1] for command in commands}) == 2


def test_nodes_of_several_dvms(make: Make) -> None:
    harness = make(2)
    task = harness.task()
    task.slots[1]['node_index'] = 1
    harness.run(task)
    assert task.target_state == states.FAILED
    assert 'no distributed virtual machine' in str(task.exception_detail)


def test_a_rank_that_fails_is_the_task_s_own_failure(make: Make) -> None:
    harness = make()
    task = harness.run_one(**sh('exit $((RP_RANK * 3))'))
    assert (task.target_state, task.exit_code) == (states.FAILED, 3)
    assert harness.calls() == 1


def test_tasks_of_a_dvm_that_dies_run_again_when_it_is_back(make: Make, tmp_path: Path) -> None:
    harness = make()
    task = harness.task(**twice(tmp_path), ranks=1, use_mpi=True)
    harness.when(lambda: said(tmp_path / 'pids'), lambda: os.kill(harness.dvms()[0], signal.SIGKILL))
    harness.run(task)
    assert task.target_state == states.DONE, task.exception_detail
    assert (harness.calls(), len(harness.dvms())) == (2, 2)
    events = [row[1] for row in harness.rows(task.uid)]
    assert all(events.count(each) == 1 for each in ('launch_start', 'launch_submit', 'launch_collect', 'task_run_stop'))


def test_a_lost_dvm(make: Make, tmp_path: Path) -> None:
    """One that cannot be started again: its nodes are told, and its tasks placed elsewhere."""
    placed: list[str] = []
    lost: list[range] = []

    class Elsewhere(NodePorts):
        def place_again(self, task: Any, reason: str) -> bool:
            assert 'no daemon could be started' in reason
            placed.append(task.uid)
            for slot in task.slots:
                slot['node_index'] = 0
            harness.executor.put([task])
            return True

        def nodes_lost(self, nodes: range, reason: str) -> None:
            lost.append(nodes)

    def die() -> None:
        (harness.bin / 'no-dvm').touch()
        dvm = int(next(line for line in (harness.bin / 'calls').read_text().split() if '@' in line)
                  .partition('@')[0].rpartition('-')[2])
        os.kill(dvm, signal.SIGKILL)

    harness = make(2, ports=Elsewhere())
    task = harness.task(node=1, **twice(tmp_path), ranks=1, use_mpi=True)
    harness.when(lambda: said(tmp_path / 'pids'), die)
    harness.run(task)
    assert task.target_state == states.DONE, task.exception_detail
    assert (placed, lost) == (['task.000000'], [range(1, 2)])


def test_no_dvm(make: Make) -> None:
    harness = make()
    (harness.bin / 'no-dvm').touch()
    task = harness.run_one()
    assert task.target_state == states.FAILED
    assert str(task.exception_detail).startswith('PRTE: instance 0 is lost: ended with exit code 1, its last lines:\n'
                                            'no daemon could be started')


def test_a_launcher_that_hangs_is_ended_and_the_task_launched_again(make: Make) -> None:
    harness = make(launch_timeout=0.3)
    (harness.bin / 'hangs').write_text('once')
    task = harness.run_one()
    assert task.target_state == states.DONE, task.exception_detail
    assert harness.calls() == 2


def test_a_launcher_that_does_not_return(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dvms, '_POLL_S', (0.1, 0.1))
    harness = make()
    (harness.bin / 'stays').write_text('once')
    fails = harness.task('fails', **sh('exit $RP_RANK'))
    harness.run(fails)
    assert (fails.target_state, fails.exit_code) == (states.FAILED, 1)
    (harness.bin / 'stays').write_text('once')
    done = harness.task('done')
    harness.run(done)
    assert (done.target_state, done.exit_code) == (states.DONE, 0)
    assert harness.calls() == 2


def test_a_launcher_that_never_launches_anything(make: Make) -> None:
    harness = make()
    program(harness.bin / 'prun', 'case "$1" in (--version) echo "prun (PRRTE) 3.0.2"; exit 0 ;; esac\n'
                                  'echo "$*" >>"${0%/*}/calls"; echo "no contact" >&2; exit 5')
    task = harness.run_one()
    assert task.target_state == states.FAILED
    assert '3 launches have failed, the last one: exit code: 5 of `' in str(task.exception_detail)
    assert 'no contact' in str(task.exception_detail)
    assert harness.calls() == 3


def test_cancelled_tasks(make: Make, tmp_path: Path) -> None:
    """One that runs, one that has not come to run."""
    harness = make()
    runs = harness.task('runs', **sh(f'echo $$ >{tmp_path}/pid; exec sleep 1000'))
    harness.when(lambda: said(tmp_path / 'pid'), lambda: harness.executor.cancel(['runs']))
    harness.run(runs)
    assert runs.target_state == states.CANCELED
    waits = harness.task('waits')
    harness.loop.call_soon(harness.executor.cancel, ['waits'])
    harness.run(waits)
    assert waits.target_state in (states.CANCELED, states.DONE)
    harness.stop()


def test_stopping_ends_tasks_and_dvms(make: Make, tmp_path: Path) -> None:
    harness = make()
    task = harness.task(**sh(f'echo $$ >{tmp_path}/pid; exec sleep 1000'))
    harness.wanted = 2
    harness.executor.put([task])
    harness.when(lambda: said(tmp_path / 'pid'), harness.loop.stop)
    harness.wait()
    harness.stop()
    assert task.target_state == states.CANCELED
    assert all(map(is_gone, harness.dvms()))


def test_an_older_one(make: Make) -> None:
    """ORTE, whose programs have other names and say other things."""
    harness = make(method='ORTE')
    program(harness.bin / 'orte-dvm', PRTE.replace('echo "prterun', 'echo "VMURI: prterun'))
    program(harness.bin / 'orterun', PRUN.replace('PMIX_RANK', 'OMPI_COMM_WORLD_RANK'))
    (harness.bin / 'stdbuf').symlink_to('/usr/bin/stdbuf')
    task = harness.run_one(**sh('echo $RP_RANK of $RP_RANKS'))
    assert task.target_state == states.DONE, task.exception_detail
    assert sorted((Path(task.sandbox) / f'{task.uid}.out').read_text().splitlines()) == ['0 of 2', '1 of 2']


def test_a_number_of_dvms_that_makes_no_sense(make: Make) -> None:
    harness = make(dvm_count=0)
    task = harness.run_one()
    assert task.target_state == states.FAILED
    assert 'dvm_count is 0' in str(task.exception_detail)
