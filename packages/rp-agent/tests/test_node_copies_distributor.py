"""The distribution of an archive, to nodes that are objects: what is on the way, and what is repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rp_agent.node_copies import distributor
from rp_agent.node_copies.distributor import Distributor, Item, Outcome
from rp_api.loop.event_loop import Loop

PIECE = 100
WINDOW = 400


class Node:
    """A node as the distributor sees it: it takes what it gets, up to a limit."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self.content = b''
        self.most_unread = 0
        self.taken = 0

    def get(self, item: Item) -> int:
        """Take a piece; return what is taken now."""
        if item['offset'] <= len(self.content):
            self.content += item['data'][len(self.content) - item['offset']:]
        self.most_unread = max(self.most_unread, len(self.content) - self.taken)
        self.taken = min(len(self.content), self.limit)
        return self.taken


class Distribution:
    """A distributor, and nodes by name, which answer at once unless `answers` has another first event."""

    def __init__(self, archive: Path, **nodes: Node) -> None:
        self.loop = Loop()
        self.nodes = nodes
        self.size = archive.stat().st_size
        self.answers: dict[str, str] = {}
        self.given_up: list[str] = []
        self.repeated: list[str] = []
        self.lose: Callable[[str, int], bool] = lambda name, offset: False
        self.outcome: Outcome | None = None
        self.made = Distributor('copy', str(archive), self.loop, self._offload, self, self._done)

    def run(self) -> Outcome:
        self.loop.call_soon(self.made.start, list(self.nodes))
        late = self.loop.call_later(30.0, pytest.fail, 'no outcome')
        self.loop.run()
        late.cancel()
        assert self.outcome is not None
        return self.outcome

    def close(self) -> None:
        self.made.close()
        self.loop.close()

    def say(self, name: str, event: str, value: str = '') -> None:
        self.loop.call_soon(self.made.report, name, event, value)

    def _done(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.loop.stop()

    def _offload(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[..., object]) -> None:
        try:
            self.loop.call_soon(done, work())
        except OSError as error:
            self.loop.call_soon(failed, error)

    def put(self, name: str, item: Item) -> None:
        if item['what'] == 'unpack':
            assert item['size'] == self.size
            self.say(name, self.answers.get(name, 'wants'))
        elif item['what'] == 'piece':
            self.repeated.append(name)
            self._piece(name, item)
        else:
            self.given_up.append(name)

    def spread(self, names: list[str], item: Item) -> None:
        for name in names:
            if not self.lose(name, item['offset']):
                self._piece(name, item)

    def _piece(self, name: str, item: Item) -> None:
        assert item['copy'] == 'copy'
        taken = self.nodes[name].get(item)
        self.say(name, 'ready' if taken == self.size else 'taken', f'/{name}' if taken == self.size else str(taken))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Distribution]]:
    """Makes a distribution of an archive of 25 pieces."""
    made: list[Distribution] = []
    monkeypatch.setattr(distributor, 'PIECE_BYTES', PIECE)
    monkeypatch.setattr(distributor, 'WINDOW_BYTES', WINDOW)
    monkeypatch.setattr(distributor, 'REPEAT', 0.01)
    monkeypatch.setattr(distributor, 'TIMEOUT', 0.1)
    (tmp_path / 'archive').write_bytes(bytes(range(250)) * 10)

    def distribution(**nodes: Node) -> Distribution:
        made.append(Distribution(tmp_path / 'archive', **nodes))
        return made[-1]

    yield distribution
    for each in made:
        each.close()


def test_all_nodes_get_all_of_it(make: Callable[..., Distribution]) -> None:
    made = make(a=Node(), b=Node())
    assert made.run() == Outcome({'a': '/a', 'b': '/b'})
    assert {node.content for node in made.nodes.values()} == {bytes(range(250)) * 10}
    assert made.repeated == []


def test_the_slowest_node_limits_what_is_on_the_way(make: Callable[..., Distribution]) -> None:
    made = make(a=Node(), b=Node(limit=300))
    outcome = made.run()
    assert outcome.paths == {'a': '/a'}
    assert outcome.failures == {'b': 'no progress for 0.1 s'}
    assert made.given_up == ['b']
    assert made.nodes['b'].most_unread <= WINDOW


def test_lost_pieces_are_repeated_for_the_node_that_lacks_them(make: Callable[..., Distribution]) -> None:
    made = make(a=Node(), b=Node())
    made.lose = lambda name, offset: name == 'b' and offset in (500, 2400)
    assert made.run() == Outcome({'a': '/a', 'b': '/b'})
    assert {*made.repeated} == {'b'}


def test_a_node_that_waited_in_vain_gets_a_round_of_its_own(make: Callable[..., Distribution]) -> None:
    """Another process on its host unpacks, and fails."""
    made = make(a=Node(), b=Node(), c=Node())
    made.answers = {'b': 'waits', 'c': 'waits'}

    def lose(name: str, offset: int) -> bool:
        if offset == 500 and made.answers.pop('b', ''):
            made.say('a', 'failed', 'no space')
            made.say('b', 'wants')
            made.say('c', 'ready', '/c')
        return False

    made.lose = lose
    assert made.run() == Outcome({'c': '/c', 'b': '/b'}, {'a': 'no space'})
    assert made.nodes['c'].content == b''


def test_lost_nodes_do_not_count(make: Callable[..., Distribution]) -> None:
    made = make(a=Node(), b=Node(limit=0))
    made.loop.call_later(0.02, made.made.lost, 'b')
    assert made.run() == Outcome({'a': '/a'})


def test_a_node_that_waits_for_ever_is_given_up(make: Callable[..., Distribution]) -> None:
    made = make(a=Node())
    made.answers = {'a': 'waits'}
    assert made.run().failures == {'a': 'no progress for 0.1 s'}
    assert made.given_up == ['a']


def test_nodes_wait_for_one_that_starts_late(make: Callable[..., Distribution]) -> None:
    """However late: its start has a time-out of its own."""
    made = make(a=Node(), b=Node(), c=Node())
    made.answers = {'b': 'asked'}
    made.loop.call_later(0.3, made.say, 'b', 'wants')
    assert {*made.run().paths} == {'a', 'b', 'c'}


def test_an_archive_that_became_shorter_is_a_failure(make: Callable[..., Distribution], tmp_path: Path) -> None:
    made = make(a=Node())
    (tmp_path / 'archive').write_bytes(b'x' * 150)
    assert 'archive cannot be read' in made.run().failures['a']


def test_without_nodes_it_is_done(make: Callable[..., Distribution]) -> None:
    assert make().run() == Outcome()
