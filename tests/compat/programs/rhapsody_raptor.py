"""Functions and commands through rhapsody's backend: with RAPTOR, where functions run in workers."""

import asyncio

import rhapsody
from rhapsody import ComputeTask
from rhapsody.backends import RadicalExecutionBackend

COUNT = 20


async def awake() -> None:
    """Wake the event loop now and then: rhapsody's backend resolves futures in another thread and does not wake it."""
    while True:
        await asyncio.sleep(0.1)


async def square(number: int) -> int:
    return number * number


async def main() -> None:
    backend = await RadicalExecutionBackend(
        {'resource': 'local.localhost', 'cores': 8, 'runtime': 10},
        raptor_config={'masters': [{'ranks': 1, 'workers': [{'ranks': 2}]}]})
    session = rhapsody.Session([backend])
    functions = [ComputeTask(function=square, args=(number,)) for number in range(COUNT)]
    commands = [ComputeTask(executable='/bin/echo', arguments=[str(number)]) for number in range(COUNT)]
    async with session:
        ticking = asyncio.create_task(awake())
        await session.submit_tasks([*functions, *commands])
        await asyncio.gather(*functions, *commands)
        assert [int(task.return_value) for task in functions] == [number**2 for number in range(COUNT)]
        assert [task.stdout.strip() for task in commands] == [str(number) for number in range(COUNT)]
        ticking.cancel()
    print('all results right')


asyncio.run(main())
