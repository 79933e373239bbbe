"""`rp.aio.Executor` on real pilots: coroutines that await functions and programs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import cloudpickle
import pytest
from conftest import Run

import radical.pilot as rp

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


def inverse(number: float) -> float:
    return 1 / number


def add(*numbers: int) -> int:
    return sum(numbers)


def failing() -> None:
    raise KeyError('on purpose')


def test_functions_and_programs(shared: Run) -> None:
    async def campaign() -> None:
        async with rp.aio.Executor(pilot=shared.pilot) as ex:
            f = ex.submit(add, 1, 2)
            g = ex.run('echo', 'words')
            h = ex.submit(lambda one, other: f'{one} {other.stdout.strip()}', f, g)
            assert list(await asyncio.gather(f, h)) == [3, '3 words']
            assert (await g).returncode == 0
            assert g.task.state == rp.DONE
            assert [item async for item in ex.map(add, range(10), range(10), buffersize=3)] == list(range(0, 20, 2))
            with pytest.raises(KeyError, match='on purpose'):
                await ex.submit(failing)
            with pytest.raises(KeyError):
                await anext(ex.map(lambda _: failing(), range(3)))
            results = ex.map(inverse, (1 / number for number in (1, 2, 0)))
            assert [await anext(results), await anext(results)] == [1, 2]
            with pytest.raises(ZeroDivisionError):
                await anext(results)
            with pytest.raises(rp.TaskError):
                await ex.run('false')
            assert (await ex.options(ranks=2).run('sh', '-c', 'echo rank', check=False)).stdout.count('rank') == 2
            more = [ex.submit(add, number) for number in range(5)]
            assert {await item async for item in rp.as_completed(more)} == set(range(5))
            assert await rp.aio.wait(more) == (set(more), set())
        with pytest.raises(RuntimeError):
            ex.submit(add)

    asyncio.run(campaign())


def test_cancelling_a_coroutine_cancels_the_program(shared: Run) -> None:
    async def campaign() -> None:
        async with rp.aio.Executor(pilot=shared.pilot) as ex:
            future = ex.run('sleep', 100)
            waiting = asyncio.ensure_future(future)
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert future.cancelled()

    asyncio.run(campaign())


def test_cancelling_the_coroutine_of_an_executor_ends_everything(base: Path) -> None:
    """Also while it waits at its end."""
    async def campaign(started: asyncio.Event) -> None:
        async with rp.aio.Executor(cores=2, runtime=10) as ex:
            ex.run('sleep', 1000)
            started.set()

    async def cancelling() -> None:
        started = asyncio.Event()
        running = asyncio.ensure_future(campaign(started))
        await started.wait()
        await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelling())
