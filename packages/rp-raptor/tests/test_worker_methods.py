"""Methods of the worker object in place of functions: real ranks, with a stand-in for their manager."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import pytest
from rank_support import a_manager, worker_file

from rp_api.description.python_task import PythonTask
from rp_api.functions import deserialize_obj
from rp_raptor.definitions import Definitions, worker_method
from rp_raptor.wire import payload

WORKER = '''
from rp_raptor.rank.worker import DefaultWorker

class Counter(DefaultWorker):
    def __init__(self, raptor_id):
        super().__init__(raptor_id)
        self.count = 0
    @property
    def broken(self):
        raise RuntimeError('not to be asked')
    def add(self, number, *, twice=False):
        self.count += 2 * number if twice else number
        return self.count
    async def add_later(self, number):
        return self.add(number)
'''


def test_a_rank_calls_methods_of_its_one_object(tmp_path: Path) -> None:
    """Defined, in chunks, within functions, and in described tasks; asynchronous ones as well."""
    with a_manager(tmp_path, file=worker_file(tmp_path, WORKER), class_name='Counter') as manager:
        manager.start()
        add = worker_method('add')
        assert manager.call(add, 1) == 1
        assert manager.call(add, 2, twice=True) == 5
        assert manager.call(worker_method('add_later'), 3) == 8
        assert manager.call(partial(add, 1)) == 9
        assert manager.call(lambda: add(1)) == 10
        (id,) = manager.give([payload.encode_chunk(manager.define(add), [((1,), None), ((1,), {'twice': True})])])
        manager.wait(lambda: id in manager.results)
        assert [payload.decode_result(each) for each in payload.outcomes_of(manager.results[id], 2)] == [11, 13]
        assert manager.task(mode='task.function', function=PythonTask(add, (7,)))['return_value'] == 20
        missing = "Counter has no method 'sub'; its methods are add, add_later, get_dispatcher, "
        with pytest.raises(ValueError, match=f'^{missing}'):
            manager.call(worker_method('sub'), 1)
        assert missing in manager.task(mode='task.method', method='sub')['exception']


def test_methods_outside_of_workers() -> None:
    """They cannot be called, but compared and pickled."""
    add = worker_method('add')
    assert {add, worker_method('add')} == {pickle.loads(pickle.dumps(add))}
    assert add != worker_method('sub')
    with pytest.raises(RuntimeError, match=r"^worker_method\('add'\) can be called on workers only"):
        add(1)
    with pytest.raises(TypeError, match='must be a text, not 3'):
        worker_method(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must be an identifier of Python, not 'a\.b'"):
        worker_method('a.b')


def test_an_executor_sends_a_method_once() -> None:
    """As one definition, however often it is made."""
    told: dict[bytes, bytes] = {}
    definitions = Definitions(told.__setitem__)
    calls = {definitions.encode(worker_method('add'), (1,), {})[1] for _ in range(3)}
    assert len(calls) == len(told) == 1
    assert [deserialize_obj(blob) for blob in told.values()] == [worker_method('add')]
