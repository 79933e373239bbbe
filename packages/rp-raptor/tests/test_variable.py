"""Variables of tasks: what the process and its children see, and that they take no memory for each value."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rp_raptor.rank.variable import Variable

NAME = 'RP_TEST_VARIABLE'


@pytest.fixture
def variable() -> Iterator[Variable]:
    yield Variable(NAME)
    os.environ.pop(NAME, None)


def seen_by_a_child() -> str:
    return subprocess.run(['/bin/sh', '-c', f'printf %s "${NAME}"'], stdout=subprocess.PIPE, check=True,
                          encoding='utf-8').stdout


@pytest.mark.parametrize('value', ['', 'task.000001', 'x' * 5000, 'with = in it', 'µ', '\udcff'])
def test_everybody_sees_the_value(variable: Variable, value: str) -> None:
    variable.set('before')
    variable.set(value)
    assert os.environ[NAME] == os.getenv(NAME) == value
    assert os.environb[NAME.encode()] == os.fsencode(value)
    if value.isascii():
        assert seen_by_a_child() == value


def test_values_become_longer_and_shorter(variable: Variable) -> None:
    for length in (1, 10, 1000, 3, 0, 2000):
        variable.set('y' * length)
        assert seen_by_a_child() == 'y' * length


def test_others_may_change_it(variable: Variable) -> None:
    """As the code of a task may."""
    variable.set('ours')
    os.environ[NAME] = 'theirs'
    assert seen_by_a_child() == 'theirs'
    variable.set('ours again')
    assert (os.environ[NAME], seen_by_a_child()) == ('ours again', 'ours again')
    del os.environ[NAME]
    assert seen_by_a_child() == ''
    variable.set('and again')
    assert seen_by_a_child() == 'and again'


def test_a_value_that_cannot_be(variable: Variable) -> None:
    variable.set('before')
    with pytest.raises(ValueError, match='null'):
        variable.set('a\0b')
    assert (os.environ[NAME], seen_by_a_child()) == ('before', 'before')


def test_the_variable_outlives_what_has_set_it() -> None:
    Variable(NAME).set('x' * 100)
    try:
        assert seen_by_a_child() == 'x' * 100
    finally:
        del os.environ[NAME]


def test_many_values_take_no_memory() -> None:
    """In a process of its own, which has nothing else to do."""
    script = (
        'from rp_raptor.rank.variable import Variable\n'
        'def size(): return int(open("/proc/self/statm").read().split()[1]) * 4096\n'
        f'variable = Variable({NAME!r})\n'
        'def work():\n'
        '    for number in range(100_000): variable.set(f"{number:0100d}")\n'
        'work(); before = size(); work(); print(size() - before)')
    # AddressSanitizer, if this is a build with it, would keep what was freed for a while
    environ = {**os.environ, 'ASAN_OPTIONS': 'detect_leaks=0:quarantine_size_mb=0'}
    grown = int(subprocess.run([sys.executable, '-c', script], env=environ, stdout=subprocess.PIPE, check=True).stdout)
    assert grown < 2 << 20   # os.environ would take some 20 MB
