"""Copies on the nodes of a pilot: packed, sent through the tree of sub-agents, unpacked, and removed."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_support import wait_until
from pipeline_support import Agent, nothing_left, processes_of

from rp_agent.node_copies import distributor, place
from rp_agent.node_copies.archive import pack
from rp_agent.node_copies.copies import HERE, NodeCopies
from rp_agent.node_copies.distributor import Outcome
from rp_agent.node_copies.receiver import Item, Receiver
from rp_api.loop.event_loop import Loop

NODES: dict[str, Any] = {'components': {'agent_executing': {'target': 'node'}}}
ENVIRONMENT = 'env.0123'


class Copying(Agent):
    """A pipeline with a sub-agent for each node, all on this host, and the copies."""

    def __init__(self, base: Path, nodes: int, here: bool = False) -> None:
        super().__init__(base, NODES, nodes=nodes, lfs_path_per_node=str(base / 'disk'))
        self.directory = Path(place.directory(self.config, os.environ))
        self.outcome: Outcome | None = None
        self.failure = ('', '')
        self.copies = NodeCopies(self.config, self.loop, self.helpers.run, self.pipeline.sub_agents, here)

    def provide(self, source: Path, name: str = ENVIRONMENT) -> None:
        """Copy a directory to all nodes, and run until that has ended."""
        def done(outcome: Outcome) -> None:
            self.outcome = outcome
            self.loop.stop()

        def failed(*failure: str) -> None:
            self.failure = failure   # type: ignore[assignment]
            self.loop.stop()

        self.copies.provide(name, str(source), str(self.base / f'{name}.tgz'), done, failed)
        late = self.loop.call_later(30.0, pytest.fail, 'no outcome')
        self.loop.run()
        late.cancel()

    def end(self) -> None:
        """End the sub-agents as a pilot does."""
        self.copies.close()
        self.pipeline.end(self.loop.stop)
        self.loop.run()

    def close(self) -> None:
        self.copies.close()
        super().close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Copying]]:
    made: list[Copying] = []
    (tmp_path / 'disk').mkdir()

    def copying(nodes: int, **options: Any) -> Copying:
        made.append(Copying(tmp_path, nodes, **options))
        return made[-1]

    yield copying
    for each in made:
        each.close()
    nothing_left(str(tmp_path))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory whose archive consists of several pieces, and fills the window several times."""
    made = tmp_path / 'source'
    (made / 'lib').mkdir(parents=True)
    for number in range(8):
        (made / 'lib' / str(number)).write_bytes(os.urandom(500_000))
    (made / 'script').write_text(f'#!{made}/bin/python\n')
    return made


def test_all_nodes_get_a_copy_which_ends_with_the_pilot(make: Callable[..., Copying], source: Path) -> None:
    agent = make(3, here=True)
    agent.provide(source)
    copy = agent.directory / ENVIRONMENT
    assert agent.outcome is not None
    assert agent.outcome.failures == {}
    assert len(agent.outcome.paths) == 4
    assert {*agent.outcome.paths.values()} == {str(copy)}
    assert HERE in agent.outcome.paths
    assert (copy / 'script').read_text() == f'#!{copy}/bin/python\n'
    assert (copy / 'lib' / '7').read_bytes() == (source / 'lib' / '7').read_bytes()
    agent.end()
    assert not any((agent.base / 'disk').iterdir())


def test_a_node_that_cannot_take_a_copy_is_named(make: Callable[..., Copying], source: Path) -> None:
    agent = make(2)
    shutil.rmtree(agent.base / 'disk')
    (agent.base / 'disk').touch()
    agent.provide(source)
    assert agent.outcome is not None
    assert agent.outcome.paths == {}
    assert {*agent.outcome.failures} == {'agent_n.0000', 'agent_n.0001'}
    assert all(os.strerror(errno.ENOTDIR) in reason and str(agent.directory) in reason
               for reason in agent.outcome.failures.values())


def test_lost_nodes_are_not_waited_for(make: Callable[..., Copying], source: Path) -> None:
    agent = make(2)
    assert agent.pipeline.sub_agents is not None
    agent.loop.call_soon(agent.pipeline.sub_agents._running['agent_n.0001'].child.process.kill)
    agent.provide(source)
    assert agent.outcome is not None
    assert 'agent_n.0000' in agent.outcome.paths
    assert 'agent_n.0001' not in agent.outcome.failures


def test_lost_pieces_are_repeated(make: Callable[..., Copying], source: Path,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributor, 'REPEAT', 0.05)
    agent = make(2)
    assert agent.pipeline.sub_agents is not None
    spread, sent = agent.pipeline.sub_agents.spread, []

    def losing(names: Sequence[str], item: Item) -> None:
        sent.append(item['offset'])
        if len(sent) % 3:
            spread(names, item)

    agent.pipeline.sub_agents.spread = losing   # type: ignore[method-assign]
    agent.provide(source)
    assert agent.outcome is not None
    assert len(agent.outcome.paths) == 2
    assert len(sent) > 4


def test_what_cannot_be_packed_is_a_failure(make: Callable[..., Copying], tmp_path: Path) -> None:
    agent = make(1)
    agent.provide(tmp_path / 'nowhere')
    assert agent.outcome is None
    assert 'nowhere cannot be packed' in agent.failure[0]
    assert os.strerror(errno.ENOENT) in agent.failure[0]
    assert not list(tmp_path.glob(f'{ENVIRONMENT}*'))


def test_an_archive_is_packed_once(make: Callable[..., Copying], source: Path, tmp_path: Path) -> None:
    agent = make(1)
    agent.provide(source)
    before = (tmp_path / f'{ENVIRONMENT}.tgz').stat()
    agent.provide(source)
    assert (tmp_path / f'{ENVIRONMENT}.tgz').stat() == before
    assert [path.name for path in tmp_path.glob(f'{ENVIRONMENT}*')] == [f'{ENVIRONMENT}.tgz']


# one node

class OneNode:
    """The receiver of a node, and what it reports."""

    def __init__(self, base: Path) -> None:
        self.loop = Loop()
        config = {'session': 's', 'pilot': 'p', 'registry_address': str(base),
                  'platform': {'lfs_path_per_node': str(base)}}
        self.directory = Path(place.directory(config, {}))
        self.receiver = Receiver(config, self.loop, self._say)
        self.said: list[str] = []
        self._until = ''

    def ask(self, size: int) -> None:
        self.receiver.receive({'copy': 'env', 'what': 'unpack', 'size': size})

    def piece(self, offset: int, data: bytes) -> None:
        self.receiver.receive({'copy': 'env', 'what': 'piece', 'offset': offset, 'data': data})

    def run_until(self, event: str) -> str:
        """The value of the event."""
        self._until = event
        late = self.loop.call_later(30.0, pytest.fail, f'{event} was not reported, but {self.said}')
        if not self.said or not self.said[-1].startswith(event):
            self.loop.run()
        late.cancel()
        return self.said[-1]

    def _say(self, item: Item) -> None:
        self.said.append(f'{item["event"]} {item["value"]}')
        if item['event'] == self._until:
            self.loop.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OneNode]:
    (tmp_path / 'disk').mkdir()
    made = OneNode(tmp_path / 'disk')
    yield made
    made.receiver.close()
    made.loop.close()
    assert not any((tmp_path / 'disk').iterdir())


def test_an_incomplete_archive_leaves_nothing(node: OneNode) -> None:
    node.ask(5)
    node.run_until('wants')
    node.piece(0, b'wrong')
    assert 'incomplete' in node.run_until('failed')
    assert not (node.directory / 'env').exists()
    assert not (node.directory / 'env.part').exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB, if this user may mount one."""
    path = tmp_path / 'small'
    path.mkdir()
    done = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=256k', 'none', path], capture_output=True, check=False)
    if done.returncode:
        (pytest.fail if 'CI' in os.environ else pytest.skip)(f'cannot mount a file system: {done.stderr.decode()}')
    yield path
    subprocess.run(['umount', '-l', path], check=True)


def test_a_full_disk_is_reported_and_has_room_again(source: Path, tmp_path: Path, small_disk: Path) -> None:
    archive = io.BytesIO()
    pack(str(source), archive)
    content = archive.getvalue()
    node = OneNode(small_disk)
    node.ask(len(content))
    node.run_until('wants')
    node.piece(0, content)
    assert os.strerror(errno.ENOSPC) in node.run_until('failed')
    assert not list(node.directory.glob('env*/*'))
    node.receiver.close()
    node.loop.close()
    assert not any(small_disk.iterdir())


def test_one_process_unpacks_and_the_others_wait(node: OneNode) -> None:
    node.directory.mkdir(mode=0o700)
    lock = os.open(node.directory / 'env.lock', os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    node.ask(1)
    node.run_until('waits')
    (node.directory / 'env').mkdir()
    os.close(lock)
    assert node.run_until('ready') == f'ready {node.directory}/env'


def test_the_rest_of_a_killed_unpacker_is_replaced(node: OneNode) -> None:
    (node.directory / 'env.part' / 'old').mkdir(parents=True)
    node.directory.chmod(0o700)
    node.ask(1)
    node.run_until('wants')
    assert not (node.directory / 'env.part' / 'old').exists()


def test_a_killed_unpacker_is_reported(node: OneNode) -> None:
    node.ask(1)
    node.run_until('wants')
    [pid] = [pid for pid, line in processes_of(str(node.directory)).items() if 'unpacker' in line]
    os.kill(pid, signal.SIGKILL)
    assert 'exit code -9' in node.run_until('failed')


def test_a_distributor_that_gives_up_ends_the_unpacker(node: OneNode) -> None:
    node.ask(1)
    node.run_until('wants')
    node.receiver.receive({'copy': 'env', 'what': 'give_up'})
    nothing_left(str(node.directory))


def test_abandoned_directories_are_removed(node: OneNode) -> None:
    """Not those of other pilots that run."""
    abandoned, held = node.directory.with_name(f'rp.{os.geteuid()}.a'), node.directory.with_name(f'rp.{os.geteuid()}.b')
    os.close(place.hold(str(abandoned)))
    lock = place.hold(str(held))
    node.ask(1)
    node.run_until('wants')
    assert not abandoned.exists()
    assert held.exists()
    place.release(str(held), lock)


def test_others_cannot_prepare_the_directory(node: OneNode) -> None:
    node.directory.mkdir()
    node.directory.chmod(0o777)
    node.ask(1)
    assert 'others may write' in node.run_until('failed')
    node.directory.rmdir()


KILLED = '''
import os, sys
from pathlib import Path
from rp_agent.nodes import guard
from rp_agent.node_copies import place
from rp_agent.node_copies.receiver import Receiver
from rp_api.loop.event_loop import Loop

config = {'session': 's', 'pilot': 'p', 'registry_address': 'a', 'platform': {'lfs_path_per_node': sys.argv[1]}}
guard.start({'RP_PILOT_ID': sys.argv[1]}, place.directory(config, os.environ))
loop = Loop()
Receiver(config, loop, lambda item: print(item['event'], flush=True)).receive(
    {'copy': 'env', 'what': 'unpack', 'size': 100})
loop.run()
'''


def test_nothing_is_left_of_a_killed_agent(tmp_path: Path) -> None:
    """It is killed with its session while it unpacks: the unpacker ends, and the guard removes what there is."""
    (tmp_path / 'disk').mkdir()
    process = subprocess.Popen([sys.executable, '-c', KILLED, str(tmp_path / 'disk')], stdout=subprocess.PIPE,
                               start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b'wants\n'
        wait_until(lambda: any((tmp_path / 'disk').rglob('env.part')), 'the beginning')
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    wait_until(lambda: not any((tmp_path / 'disk').iterdir()), 'the removal')
    nothing_left(str(tmp_path))


@pytest.mark.parametrize(('defined', 'expected'), [
    ('/local', '/local'), ('$SCRATCH/x', '/s/x'), ('${SCRATCH}', '/s'), ('', ''), ('$UNKNOWN', '')])
def test_the_disk_of_a_node(defined: str, expected: str, tmp_path: Path) -> None:
    config = {'session': 's', 'pilot': 'p', 'registry_address': 'a', 'platform': {'lfs_path_per_node': defined}}
    found = place.directory(config, {'SCRATCH': '/s', 'TMPDIR': str(tmp_path)})
    assert os.path.dirname(found) == (expected or str(tmp_path))


@pytest.mark.parametrize('environment', [{}, {'TMPDIR': '/only/on/the/first/node'}])
def test_nodes_without_a_temporary_directory_of_their_own(environment: dict[str, str]) -> None:
    config = {'session': 's', 'pilot': 'p', 'registry_address': 'a', 'platform': {}}
    assert os.path.dirname(place.directory(config, environment)) == '/tmp'
