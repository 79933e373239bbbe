"""Identities of functions: all that the result of a call can depend on is in the digest, or there is none."""

from __future__ import annotations

import abc
import functools
import itertools
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rp_client.cache.digest import DigestError, digest
from rp_client.cache.files import Seen

CAUGHT_BEFORE = '''
def h(x):
    try:
        a = risky(x)
    except ValueError:
        return 'caught'
    else:
        return 1 / a if a else risky('z')
'''
CAUGHT_LATER = '''
def h(x):
    try:
        a = risky(x)
        return 1 / a if a else risky('z')
    except ValueError:
        return 'caught'
'''


def made(source: str, **names: Any) -> Any:
    """Return a function of a namespace that is no module."""
    namespace: dict[str, Any] = dict(names)
    exec(source, namespace)
    return namespace['h']


def scaled(fn: Callable[..., Any], factor: int = 10) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return factor * fn(*args)

    return wrapper


def with_attribute(value: int) -> Callable[[], int]:
    def function() -> int:
        return function.factor   # type: ignore[attr-defined,no-any-return]

    function.factor = value   # type: ignore[attr-defined]
    return function


def dispatching(*kinds: type) -> Callable[..., Any]:
    found = functools.singledispatch(lambda x: 'object')
    for kind in kinds:
        found.register(kind)(lambda x: 'special')
    found(3)   # fills its cache
    return found


def with_metaclass(result: int) -> type:
    class Meta(type):
        def __call__(cls, *args: Any) -> Any:
            return result

    class Made(metaclass=Meta):
        pass

    return Made


def with_slots(*names: str) -> type:
    return type('Slots', (), {'__slots__': names})


def abstract(*registered: type) -> type:
    found = abc.ABCMeta('Abstract', (), {})
    for kind in registered:
        found.register(kind)
    return found


def cached(value: int) -> Callable[..., Any]:
    return functools.lru_cache(lambda: value)


LINES = itertools.count()

DIFFERENT: dict[str, tuple[Any, Any]] = {
    'code without a module': (made('def h(x): return x + 1'), made('def h(x): return x * 1000')),
    'globals of code without a module': (made('def h(x): return x + K', K=1), made('def h(x): return x + K', K=2)),
    'a global that is missing': (made('def h(x): return json'), made('def h(x): return json', json=1)),
    'nested code': (made('def h(x): return (lambda: x + 1)()'), made('def h(x): return (lambda: x + 2)()')),
    'ranges of exceptions': (made(CAUGHT_BEFORE, risky=int), made(CAUGHT_LATER, risky=int)),
    'a wrapped library function': (statistics.mean, scaled(statistics.mean)),
    'what is wrapped': (scaled(statistics.mean), scaled(statistics.median)),
    'closures': (scaled(len, 2), scaled(len, 3)),
    'attributes of functions': (with_attribute(2), with_attribute(3)),
    'registered functions': (dispatching(), dispatching(int)),
    'metaclasses': (with_metaclass(1), with_metaclass(2)),
    'slots': (with_slots('a'), with_slots('a', 'b')),
    'made dataclasses': (make_dataclass('D', [('a', int, 1)]), make_dataclass('D', [('a', int, 2)])),
    'objects of made dataclasses': (make_dataclass('D', [('a', int, 1)])(), make_dataclass('D', [('b', int, 1)])()),
    'registered classes': (abstract(), abstract(Path)),
    'functions with a cache': (cached(1), cached(2)),
    'defaults': (made('def h(x=1): return x'), made('def h(x=2): return x')),
    'defaults of keywords': (made('def h(*, x=1): return x'), made('def h(*, x=2): return x')),
    'names': (made('def h(): return h.__name__'), made('def g(): return h.__name__\nh = g')),
    'texts that programs read': (made('def h():\n  "a"\n  return h.__doc__'),
                                 made('def h():\n  "b"\n  return h.__doc__')),
    'annotations': (made('def h(x: int): return x'), made('def h(x: str): return x')),
    'types of constants': (made('def h(): return 1'), made('def h(): return True')),
    'keyword arguments in another order': ({'b': 1, 'a': 2}, {'a': 2, 'b': 1}),
    'own state': (SimpleNamespace(a=1), SimpleNamespace(a=2))}


@pytest.mark.parametrize('what', DIFFERENT)
def test_what_makes_a_difference(what: str) -> None:
    one, other = DIFFERENT[what]
    assert digest(one) != digest(other)


@pytest.mark.parametrize('make', [
    lambda: made('def h(x): return x + K', K=1), lambda: scaled(statistics.mean), lambda: dispatching(int),
    lambda: with_metaclass(1), lambda: make_dataclass('D', [('a', int, 1)]), lambda: abstract(Path), lambda: cached(1),
    lambda: with_slots('a'), lambda: made('\n' * next(LINES) + 'def h(): return 1')])
def test_what_makes_none(make: Callable[[], Any]) -> None:
    assert len({digest(make()) for _ in range(4)}) == 1


def test_a_patch_of_a_library_is_not_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(statistics.median)
    monkeypatch.setattr(statistics, 'median', scaled(statistics.median))
    assert digest(statistics.median) != before


class Other:
    def __init__(self) -> None:
        self.count = 0

    def __reduce__(self) -> Any:
        self.count += 1
        return str, (str(self.count),)


@pytest.mark.parametrize('value', [Other(), [Other()], scaled(Other())])   # type: ignore[arg-type]
def test_what_is_pickled_in_another_way_each_time_is_refused(value: Any) -> None:
    with pytest.raises(DigestError, match=r'Other is pickled in another way each time'):
        digest(value)


def test_a_module_without_file_is_refused() -> None:
    module = ModuleType('made_by_hand')
    with pytest.raises(DigestError, match='the module made_by_hand has no file'):
        digest(made('def h(): return module', module=module))


# what is imported

USING = '''
import sys
sys.path[:0] = sys.argv[1:2]
from rp_client.cache.digest import digest
from rp_client.cache.files import Seen
import thing
def f():
    return thing.value()
def g():
    import thing
    return thing.value()
seen = Seen()
print(digest(f, seen).hex(), digest(g).hex(), digest(thing.value).hex(), '|'.join(seen.parts))
sys.stdin.readline()
print(seen.changed())
'''


def digests(place: Path, change: Callable[[], object] = lambda: None) -> tuple[list[str], str, str]:
    """Return the digests of users of the module `thing`, what was seen, and what has changed of it after a change."""
    with subprocess.Popen([sys.executable, '-c', USING, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        assert process.stdout
        *found, seen = process.stdout.readline().split(' ', 3)
        change()
        changed, _ = process.communicate('\n', timeout=50)
    assert process.returncode == 0
    return found, seen.strip(), changed.strip()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory of packages with `thing`, which has no version and requires the package `needed`."""
    place = tmp_path / 'site-packages'
    for name, requires in {'thing': 'Requires-Dist: Needed_Much (>=1)\n', 'needed-much': ''}.items():
        info = place / f'{name.replace("-", "_")}-1.dist-info'
        info.mkdir(parents=True)
        (info / 'METADATA').write_text(f'Name: {name}\n{requires}')
    (place / 'thing').mkdir()
    (place / 'thing' / '__init__.py').write_text('def value(): return 1\n')
    (place / 'needed').mkdir()
    (place / 'needed' / '__init__.py').write_text('')
    (place / 'thing-1.dist-info' / 'RECORD').write_text('thing/__init__.py,sha256=1,22\nthing-1.dist-info/RECORD,,\n')
    (place / 'needed_much-1.dist-info' / 'RECORD').write_text('needed/__init__.py,sha256=1,0\n')
    return place


@pytest.mark.parametrize('path', ['thing-1.dist-info/RECORD', 'thing/unlisted.json', 'thing/below/unlisted.py',
                                  'needed_much-1.dist-info/RECORD'])
def test_installed_packages_count_by_what_they_contain(site: Path, path: str) -> None:
    def change() -> None:
        (site / path).parent.mkdir(exist_ok=True)
        with (site / path).open('a') as file:
            file.write('changed,sha256=2,3\n')

    before, seen, changed = digests(site, change)
    assert (seen, changed) == ('package thing', 'package thing')
    after, _, _ = digests(site)
    assert [one == other for one, other in zip(before, after, strict=True)] == [False] * 3
    assert digests(site)[0] == after   # although Python has made files for its own use


def test_a_package_without_record_counts_by_its_files(site: Path) -> None:
    (site / 'thing-1.dist-info' / 'RECORD').unlink()
    (site / 'thing-1.dist-info' / 'top_level.txt').write_text('thing\n')
    before, _, _ = digests(site)
    (site / 'thing' / '__init__.py').write_text('def value(): return 2\n')
    assert not {*before} & {*digests(site)[0]}


C_SOURCE = r'''
#include <Python.h>
static PyObject *value(PyObject *self, PyObject *args) { return PyLong_FromLong(%d); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "thing", "", -1, methods};
PyMODINIT_FUNC PyInit_thing(void) { return PyModule_Create(&module); }
'''


def build(place: Path, number: int) -> None:
    """Build the extension module `thing`."""
    source = place / 'thing.c'
    source.write_text(C_SOURCE % number)
    target = place / f'thing{sysconfig.get_config_var("EXT_SUFFIX")}'
    include = sysconfig.get_paths()['include']
    subprocess.run(['cc', '-shared', '-fPIC', f'-I{include}', source, '-o', target], check=True, timeout=50)


def test_own_extension_modules_count_by_their_content(tmp_path: Path) -> None:
    build(tmp_path, 1)
    before, seen, changed = digests(tmp_path, lambda: build(tmp_path, 2))
    assert (seen, changed) == ('module thing', 'module thing')
    assert not {*before} & {*digests(tmp_path)[0]}


def test_own_modules_count_by_the_files_that_workers_import(tmp_path: Path) -> None:
    (tmp_path / 'thing.py').write_text('def value(): return 1\n')
    before, seen, changed = digests(tmp_path, lambda: (tmp_path / 'thing.py').write_text('def value(): return 2\n'))
    assert (seen, changed) == ('module thing', 'module thing')
    assert not {*before} & {*digests(tmp_path)[0]}


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, 'dont_write_bytecode', True)
    yield tmp_path
    sys.modules.pop('edited', None)


def test_a_module_that_is_edited_after_its_import_counts_as_it_is(importable: Path) -> None:
    (importable / 'edited.py').write_text('def value(): return 1\n')
    import edited  # type: ignore[import-not-found]

    before, seen = digest(edited.value), Seen()
    assert digest(edited.value, seen) == before
    (importable / 'edited.py').write_text('def value(): return 2\n')   # workers import this
    assert digest(edited.value) != before
    assert seen.changed() == 'module edited'
