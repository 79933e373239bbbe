"""Digests: equal content in all processes gives equal digests, and other content gives other ones."""

from __future__ import annotations

import datetime
import json
import math
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rp_client.cache.digest import DigestError, digest
from rp_client.cache.files import Seen, look

OFFSET = 3


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Point:
    x: int
    y: Any = None

    def norm(self) -> float:
        return abs(self.x)


def file_digest(path: str) -> bytes:
    return look(path).digest


def helper(x: int) -> int:
    return x + OFFSET


def plain(x: int) -> int:
    return helper(x)


def power(exponent: int) -> Any:
    return lambda x: x ** exponent


OTHERS = [
    None, True, 1, 1.0, '1', b'1', 1 + 0j, [1], (1,), {1}, frozenset({1}), {1: 1}, {'1': 1}, [], (), {}, set(), ..., '',
    b'', float('nan'), math.inf, -0.0, 0.0, [1, 2], [2, 1], [[1], 2], [1, [2]], {'a': 1, 'b': 2}, {'a': 2, 'b': 1},
    Colour.RED, Colour.BLUE, Point(1), Point(2), Point(1, Point(2)), Path('/a'), Path('/b'), int, str, Point, Colour,
    len, math.sin, math, json, json.dumps, os.path.join, helper, plain, power(2), power(3), partial(helper, 1),
    partial(helper, 2), partial(plain, 1), Point(1).norm, datetime.date(2026, 1, 2), datetime.date(2026, 1, 3), 'é',
    '\udc80', 2 ** 70, 2 ** 71]


def test_different_values_have_different_digests() -> None:
    found = list(map(digest, OTHERS))
    assert [value for value, each in zip(OTHERS, found, strict=True) if found.count(each) > 1] == []


def test_equal_values_have_equal_digests() -> None:
    one = {'b': [1, 2.5, 'x'], 'a': {3, 1, 2}, 'f': power(2), 'p': Point(1, [Colour.RED])}
    other = {'b': [1, 2.5, 'x'], 'a': {2, 3, 1}, 'f': power(2), 'p': Point(1, [Colour.RED])}
    assert digest(one) == digest(other)


def test_what_a_function_can_see_of_equal_values_counts() -> None:
    assert list({'b': 1, 'a': 2}) != list({'a': 2, 'b': 1})
    assert digest({'b': 1, 'a': 2}) != digest({'a': 2, 'b': 1})
    shared = [1]
    assert digest([shared, shared]) != digest([[1], [1]])   # a function may change it
    assert digest([shared, shared]) == digest([other := [1], other])


def test_a_value_that_contains_itself_has_a_digest() -> None:
    one: list[Any] = [1]
    one.append(one)
    other: list[Any] = [1]
    other.append(other)
    assert digest(one) == digest(other) != digest([1])


MODULE = '''
import json, functools
NAMES = {{'b', 'a', 'cc', 'ddd'}}
class Model:
    """A model."""
    scale = {scale}
    def run(self, x):
        return x * self.scale
@functools.lru_cache
def cached(x):
    return x, {cached}
def inner(x):
    """Not the same in all versions: {comment}"""
    return Model().run(x) + {plus}   # {comment}
def outer(x):
    return [cached(inner(y)) for y in NAMES | {{'e', x}}], json.dumps(x)
'''

PROGRAM = '''
import sys
sys.path.insert(0, sys.argv[1])
import user_code
from rp_client.cache.digest import digest
print(digest(user_code.outer).hex(), digest(user_code).hex(), digest(user_code.Model).hex())
'''


def digests_of(directory: Path, *, scale: int = 2, plus: int = 1, cached: int = 1, comment: str = '',
               seed: int = 0) -> list[str]:
    """The digests of a function, of its module and of a class, in a process of their own."""
    directory.mkdir()
    (directory / 'user_code.py').write_text(MODULE.format(scale=scale, plus=plus, cached=cached, comment=comment))
    return subprocess.run([sys.executable, '-c', PROGRAM, directory], check=True, capture_output=True, text=True,
                          timeout=50, env=os.environ | {'PYTHONHASHSEED': str(seed)}).stdout.split()


def test_functions_count_by_the_code_that_they_use(tmp_path: Path) -> None:
    function, module, model = digests_of(tmp_path / 'first')
    assert digests_of(tmp_path / 'again', seed=1) == [function, module, model]
    for changed in (digests_of(tmp_path / 'inner', plus=2), digests_of(tmp_path / 'cached', cached=2),
                    digests_of(tmp_path / 'model', scale=3)):
        assert not {function, module, model} & set(changed)   # the files of a module count for all that is in it


@pytest.mark.parametrize('value', [threading.Lock(), (letter for letter in 'x'), sys.stdout])
def test_what_another_process_cannot_compare_is_refused(value: Any) -> None:
    with pytest.raises(DigestError):
        digest([value])


def test_the_error_names_the_function() -> None:
    lock = threading.Lock()
    with pytest.raises(DigestError, match=r'the function .*<lambda> uses a value .* _thread.lock'):
        digest(lambda: lock)


def test_arrays_count_by_their_content() -> None:
    numpy = pytest.importorskip('numpy')
    one = numpy.arange(10)
    assert digest(one) == digest(numpy.arange(10)) != digest(one[::-1])
    assert digest(one) != digest(one.astype(float))


def test_files_and_directories(tmp_path: Path) -> None:
    one, other = tmp_path / 'one', tmp_path / 'other'
    for path in (one, other):
        (path / 'below').mkdir(parents=True)
        (path / 'below' / 'file').write_text('content')
        (path / 'link').symlink_to('below/file')
    assert file_digest(str(one)) == file_digest(str(other))
    assert file_digest(str(one / 'below' / 'file')) == file_digest(str(other / 'link'))
    before = file_digest(str(one))
    (one / 'below' / 'file').write_text('contenu')   # of equal size, within one tick of the clock
    changed = file_digest(str(one))
    assert changed != before
    (other / 'below' / 'file').chmod(0o755)
    assert file_digest(str(other)) != before   # a script that can be executed is another input
    (one / 'new').touch()
    assert file_digest(str(one)) != changed
    with pytest.raises(FileNotFoundError):
        file_digest(str(tmp_path / 'none'))


def test_a_file_that_has_not_changed_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / 'file'
    path.write_text('content')
    later = time.time() + 10
    monkeypatch.setattr(time, 'time', lambda: later)
    before = file_digest(str(path))
    monkeypatch.setattr(os, 'open', None)
    assert file_digest(str(path)) == before


@pytest.mark.parametrize('how', ['in place', 'another file', 'links'])
def test_equal_size_and_time_hide_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    path, other = tmp_path / 'file', tmp_path / 'other'
    path.write_text('before')
    other.write_text('behind')
    for each in (path, other):
        os.utime(each, (1, 1))
    later = time.time() + 10
    monkeypatch.setattr(time, 'time', lambda: later)
    target = tmp_path / 'link'
    target.symlink_to('file')
    before = look(str(target))
    if how == 'in place':
        path.write_text('behind')
        os.utime(path, (1, 1))
    elif how == 'another file':
        other.replace(path)
    else:
        target.unlink()
        target.symlink_to('other')
    assert look(str(target)).digest != before.digest


def test_a_write_of_the_same_content_is_seen(tmp_path: Path) -> None:
    path = tmp_path / 'directory' / 'file'
    path.parent.mkdir()
    path.write_text('content')
    seen = Seen()
    seen.file(str(path.parent))
    assert seen.changed() == ''
    os.utime(path, (1, 1))
    before = look(str(path.parent))
    path.write_text('content')
    after = look(str(path.parent))
    assert after.digest == before.digest
    assert after.state != before.state
    assert seen.changed() == f'file {path.parent}'


def test_what_links_in_a_directory_lead_to_counts(tmp_path: Path) -> None:
    tree, outside = tmp_path / 'tree', tmp_path / 'outside'
    for path in (tree, outside):
        path.mkdir()
    (outside / 'file').write_text('1')
    (tree / 'file').symlink_to('../outside/file')
    (tree / 'directory').symlink_to(outside)
    (tree / 'nowhere').symlink_to('nothing')
    (tree / 'round').symlink_to('.')
    before = file_digest(str(tree))
    assert file_digest(str(tree)) == before
    (outside / 'file').write_text('2')
    changed = file_digest(str(tree))
    assert changed != before
    (outside / 'new').touch()
    assert file_digest(str(tree)) != changed


@pytest.mark.parametrize('below', ['', 'directory'])
def test_a_fifo_is_refused_and_not_read(tmp_path: Path, below: str) -> None:
    (tmp_path / 'directory').mkdir()
    os.mkfifo(tmp_path / below / 'fifo')
    with pytest.raises(OSError, match='Neither a file nor a directory'):
        file_digest(str(tmp_path / below) if below else str(tmp_path / 'fifo'))


def test_a_directory_may_have_too_many_entries(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / str(number)).touch()
    assert look(str(tmp_path), most=4) == look(str(tmp_path))
    with pytest.raises(OSError, match='too many entries'):
        look(str(tmp_path), most=3)


IMPORTING = '''
import sys
sys.path.insert(0, sys.argv[1])
from rp_client.cache.digest import digest

def whole():
    import user_tools.numbers
    return user_tools.numbers.VALUE

def lazy():
    def inner():
        from user_model import run
        return run()
    return inner()

def foreign():
    import no_such_module
    return no_such_module.run()

if len(sys.argv) > 2:
    import user_model, user_tools.numbers
print(digest(whole).hex(), digest(lazy).hex(), digest(foreign).hex())
'''


def importing(directory: Path, *options: str) -> list[str]:
    """Return the digests of functions that import modules when they are called."""
    return subprocess.run([sys.executable, '-c', IMPORTING, directory, *options], check=True, capture_output=True,
                          text=True, timeout=50).stdout.split()


def test_functions_count_by_the_modules_that_they_import(tmp_path: Path) -> None:
    tools = tmp_path / 'user_tools'
    tools.mkdir()
    (tools / '__init__.py').write_text('from . import other\n')
    (tools / 'other.py').write_text('')
    (tools / 'numbers.py').write_text('VALUE = 1\n')
    (tmp_path / 'user_model.py').write_text('import json\ndef run():\n    import user_law\n    return user_law.G\n')
    (tmp_path / 'user_law.py').write_text('import user_model\nG = 9.81\n')
    first = importing(tmp_path)
    assert importing(tmp_path, 'imported') == first
    (tmp_path / 'user_law.py').write_text('import user_model\nG = 1.62\n')
    second = importing(tmp_path)
    assert [one == other for one, other in zip(first, second, strict=True)] == [True, False, True]
    (tools / 'numbers.py').write_text('VALUE = 2\n')
    third = importing(tmp_path)
    assert [one == other for one, other in zip(second, third, strict=True)] == [False, True, True]
