"""Objects of a script travel by value: what is pickled of them, what is said if that fails, when they have changed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from rp_api.by_value import pickler
from rp_api.by_value.classes import restored
from rp_api.by_value.snapshot import Snapshot
from rp_api.description.python_task import PythonTask
from rp_api.errors import SerializationError
from rp_api.functions import serialize_obj

Variables = dict[str, Any]

LOADER = '''
import pickle, struct, sys
read = sys.stdin.buffer.read
while header := read(4):
    found = pickle.loads(read(*struct.unpack('i', header)))
    print(found(), flush=True)
'''


def script(text: str) -> Variables:
    """The global variables of a script with this text."""
    variables: Variables = {'__name__': '__main__'}
    exec(textwrap.dedent(text), variables)
    return variables


def elsewhere(*functions: Callable[[], object] | bytes) -> list[str]:
    """What the functions return when another process restores and calls them, one after the other."""
    pickles = [each if isinstance(each, bytes) else pickler.dumps(each) for each in functions]
    data = b''.join(len(each).to_bytes(4, sys.byteorder) + each for each in pickles)
    return subprocess.run([sys.executable, '-c', LOADER], input=data, stdout=subprocess.PIPE,
                          check=True).stdout.decode().split('\n')[:-1]


WRAPPED = '''
    import functools

    @functools.cache
    def table(n):
        return list(range(n))

    @functools.lru_cache(maxsize=7, typed=True)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)
    fib.note = 'slow'

    @functools.singledispatch
    def kind(x):
        return 'other' if not isinstance(x, list) else [kind(each) for each in x]
    kind.register(int, lambda x: 'int')
    kind.note = 'by type'

    class Model:
        def __init__(self):
            self.calls = 0

        @functools.cached_property
        def size(self):
            self.calls += 1
            return 3

        @functools.lru_cache
        def add(self, x):
            return x + self.size

        @functools.singledispatchmethod
        def kind(self, x):
            return 'other'

        @kind.register
        def _(self, x: int):
            return 'int'

        @classmethod
        @functools.cache
        def name(cls):
            return cls.__name__

    def model():
        made = Model()
        return made.add(1), made.add(2), made.size, made.calls, made.kind(1), made.kind('x'), Model.name()
'''


@pytest.mark.parametrize(('expression', 'value'), [
    ('fib(10)', '55'), ('fib.cache_parameters()', "{'maxsize': 7, 'typed': True}"), ('fib.note', 'slow'),
    ('sum(table(5))', '10'), ('kind([1, "x"])', "['int', 'other']"), ('kind.note', 'by type'),
    ('model()', "(4, 5, 3, 1, 'int', 'other', 'Model')"), ('functools.partial(table, 3)()', '[0, 1, 2]'),
    ('Model().add.__name__', 'add')])
def test_what_functools_wraps_can_be_sent(expression: str, value: str) -> None:
    assert elsewhere(script(f'{textwrap.dedent(WRAPPED)}\ncall = lambda: {expression}')['call']) == [value]


def test_cached_functions_of_modules_travel_by_reference() -> None:
    import fnmatch

    wrapped = fnmatch._compile_pattern   # type: ignore[attr-defined]
    assert pickle.loads(pickler.dumps(wrapped)) is wrapped


@pytest.mark.parametrize(('text', 'cause'), [
    ('LOCK = threading.Lock()\ndef f(): return LOCK', 'function f: global variable LOCK (_thread.lock): '),
    ('LOCK = threading.Lock()\ndef g(): return LOCK\ndef f(): return g()',
     'function f: global variable g (function g): global variable LOCK (_thread.lock): '),
    ('def f(x=[threading.Lock()]): pass', 'function f: default value (list): item 0 (_thread.lock): '),
    ('def f(*, x=threading.Lock()): pass', 'function f: default value of x (_thread.lock): '),
    ('def f(): pass\nf.note = threading.Lock()', 'function f: attribute note (_thread.lock): '),
    ('def around():\n    lock = threading.Lock()\n    return lambda: lock\nf = around()',
     'function around.<locals>.<lambda>: variable lock of the function around it (_thread.lock): '),
    ('class C:\n    lock = threading.Lock()\ndef f(): return C',
     'function f: global variable C (class C): attribute lock (_thread.lock): '),
    ('class C:\n    def __init__(self): self.lock = threading.Lock()\nc = C()\ndef f(): return c',
     'function f: global variable c (__main__.C): attribute lock (_thread.lock): '),
    ('D = {"a": (1, threading.Lock())}\nimport functools\nf = functools.partial(print, D)',
     "functools.partial: its args (tuple): item 0 (dict): item 'a' (tuple): item 1 (_thread.lock): ")])
def test_what_cannot_be_sent_is_named(text: str, cause: str) -> None:
    found = script(f'import threading\n{text}')['f']
    for send in (serialize_obj, PythonTask):
        with pytest.raises(SerializationError) as caught:
            send(found)
        assert cause + "TypeError: cannot pickle '_thread.lock' object" in str(caught.value)


CHANGING = '''
    import functools, xml
    from textwrap import dedent

    K = 1
    L = [1, {'a': (2, [3])}]
    class C:
        k = 1
        def m(self): return K
    class D(C): pass
    c = C()
    c.items = {1, 2}
    @functools.cache
    def cached(): return L
    part = functools.partial(max, [1])
    def helper(): return K
    def f(x=None, *, y=None):
        def inner(): return helper()
        return inner(), L, D().k, c, cached, part, forgotten, xml.dom, xml.dom.minidom, dedent
    f(1) if False else None
'''


@pytest.mark.parametrize('change', [
    'K = 2', 'K = 1.0', 'K = True', 'del K', 'L = [1, {"a": (2, [3])}]', 'L.append(1)', 'L[1]["a"][1].append(1)',
    'L[1]["b"] = 1', 'C.k = 2', 'C.new = 2', 'del C.m', 'C.m = lambda self: 1', 'D.k = 3', 'D.__bases__ = (E,)',
    'c.items.add(3)', 'c.new = 1', 'c.__class__ = D', 'cached = functools.cache(lambda: 1)', 'cached.note = 1',
    'part.keywords["key"] = abs', 'part = functools.partial(max, [1])',
    'def helper(): return K', 'helper.__code__ = (lambda: 1).__code__', 'import json as forgotten',
    'f.__defaults__ = (1,)', 'f.__kwdefaults__["y"] = 1', 'f.__kwdefaults__ = None', 'f.note = 1',
    'f.__code__ = (lambda: 1).__code__', 'f.__doc__ = "x"', 'f.__annotations__["x"] = int',
    'sys.modules["xml.dom"] = xml', 'sys.modules["xml.dom"] = sys.modules["xml.dom.minidom"] = xml',
    'textwrap.dedent = len',
    'cloudpickle.register_pickle_by_value(textwrap)'])
def test_a_change_is_seen(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import textwrap

    import cloudpickle

    for name in ('xml.dom', 'xml.dom.minidom'):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(textwrap, 'dedent', textwrap.dedent)
    variables = script(CHANGING)
    exec('import sys, textwrap, cloudpickle\nclass E(C): pass', variables)
    snapshot = Snapshot(variables['f'])
    assert snapshot.holds(variables['f'])
    try:
        exec(change, variables)
        assert not snapshot.holds(variables['f'])
    finally:
        if textwrap.__name__ in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(textwrap)
        for name in ('xml.dom', 'xml.dom.minidom'):
            sys.modules.pop(name, None)


def test_what_the_function_does_not_use_is_no_change() -> None:
    variables = script(CHANGING)
    snapshot = Snapshot(variables['f'])
    exec('other = 1\ndef g(): return K\nC.__doc__\nc.items', variables)
    assert snapshot.holds(variables['f'])


@pytest.mark.parametrize('text', [
    'bytearray(b"x")', '__import__("array").array("i", [1])', 'iter([1])',
    'type("M", (type,), {})("C", (), {})', 'type("R", (), {"__reduce__": lambda self: (int, ())})()',
    'type("L", (list,), {})()', 'list(range(10_000))'])
def test_what_cannot_be_compared_never_holds(text: str) -> None:
    variables = script(f'V = {text}\ndef f(): return V')
    assert not Snapshot(variables['f']).holds(variables['f'])


def test_a_snapshot_does_not_keep_its_function() -> None:
    import weakref

    variables = script('K = 1\ndef f(): return K')
    gone = weakref.ref(variables['f'])
    snapshot = Snapshot(variables['f'])
    del variables['f']
    assert gone() is None
    assert snapshot.places


def test_a_class_is_as_it_was_pickled_last() -> None:
    """In another process, whatever came before; it stays the same class, and loses attributes that are gone."""
    variables = script('''
        class C:
            k = 1
        made = C()
        def f(): return C.k, hasattr(C, 'old'), isinstance(made, C)
        def g(): return C.k, hasattr(C, 'old')
    ''')
    sent: list[bytes] = []
    for k in (1, 2, 1):
        variables['C'].k = k
        if k == 2:
            variables['C'].old = 1
        elif sent:
            del variables['C'].old
        sent += [pickler.dumps(variables['f']), pickler.dumps(variables['g'])]
    assert elsewhere(*sent) == ['(1, False, True)', '(1, False)', '(2, True, True)', '(2, True)', '(1, False, True)',
                                '(1, False)']


def test_a_class_of_this_process_is_not_changed_by_its_pickles() -> None:
    """Results bring classes back as they were at the call."""
    variables = script('class C:\n    k = 1')
    old = pickler.dumps(variables['C']())
    variables['C'].k = 2
    changes = restored.changes
    assert type(pickle.loads(old)) is variables['C']
    assert variables['C'].k == 2
    assert restored.changes == changes
