"""Automata of orders: they accept what the pattern says, and with relaxed rules the same with events missing."""

from __future__ import annotations

from itertools import combinations

import pytest

from rp_profiling.catalogue import ORDERS, PartialOrder, orders_of
from rp_profiling.catalogue.model import Star, alt, opt, seq
from rp_profiling.check.orders import Automata, compile_order


def accepts(automata: Automata, word: list[str], *, strict: bool = True) -> bool:
    """Whether the whole word is accepted; with relaxed rules, each beginning of it is."""
    table = automata.strict if strict else automata.relaxed
    state = 0
    for symbol in automata.symbols_of(word):
        state = table[state, symbol] if symbol >= 0 else -1
        if state < 0:
            return False
    return not strict or bool(automata.strict_ends[state])


@pytest.fixture
def automata() -> Automata:
    return compile_order(PartialOrder('c', 's', seq('a', Star(alt('b', seq('c', 'd'))), opt('e', 'f'), 'app_*', 'g')))


@pytest.mark.parametrize('word', ['a app_1 g', 'a b b app_1 g', 'a c d b e f app_x g'])
def test_words_of_the_pattern_are_accepted(word: str, automata: Automata) -> None:
    assert accepts(automata, word.split())


@pytest.mark.parametrize('word', ['', 'a', 'app_1 g', 'a c app_1 g', 'a e app_1 g', 'a app_1 g g', 'a app_1',
                                  'b a app_1 g'])
def test_other_words_are_not(word: str, automata: Automata) -> None:
    assert not accepts(automata, word.split())


def test_relaxed_rules_allow_gaps_but_no_disorder(automata: Automata) -> None:
    word = ['a', 'c', 'd', 'b', 'e', 'f', 'app_x', 'g']
    for size in range(len(word) + 1):
        for part in combinations(word, size):
            assert accepts(automata, list(part), strict=False)
    assert not accepts(automata, ['g', 'a'], strict=False)
    assert not accepts(automata, ['f', 'e'], strict=False)
    assert not accepts(automata, ['a', 'a'], strict=False)


@pytest.mark.parametrize('order', ORDERS, ids=lambda order: f'{order.component}-{order.scope}')
def test_every_order_has_automata(order: PartialOrder) -> None:
    automata = compile_order(order)
    assert set(automata.symbols) >= order.names()
    assert automata.strict_ends.any()
    assert len(automata.strict) < 60


def test_any_event_stands_for_those_that_are_not_named() -> None:
    automata = compile_order(orders_of('All Profiles')[0])
    assert accepts(automata, ['sync_abs', 'x', 'y', 'END'])
    assert not accepts(automata, ['sync_abs', 'END', 'x'])
