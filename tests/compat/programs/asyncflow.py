"""Workflows of asyncflow on a pilot, through rhapsody's backend: chains of commands, one of which needs a GPU."""

import asyncio

from radical.asyncflow import WorkflowEngine
from rhapsody.backends import RadicalExecutionBackend

WORKFLOWS = 10


async def main() -> None:
    backend = await RadicalExecutionBackend({'resource': 'local.localhost', 'nodes': 1})
    flow = await WorkflowEngine.create(backend=backend)

    @flow.executable_task
    async def on_gpu(number: int, task_description: object = {'ranks': 1, 'gpus_per_rank': 1}) -> str:
        return f'/bin/echo first-{number}'

    @flow.executable_task
    async def shell(before: object, task_description: object = {'pre_exec': ['[[ -d $RP_TASK_SANDBOX ]]']}) -> str:
        return '/bin/echo second'

    @flow.executable_task
    async def failing(before: object) -> str:
        return '/bin/false'

    async def chain(number: int) -> tuple[str, str]:
        first = on_gpu(number)
        return await first, await shell(first)

    for number, said in enumerate(await asyncio.gather(*map(chain, range(WORKFLOWS)))):
        assert [text.strip() for text in said] == [f'first-{number}', 'second'], said
    try:
        await failing(on_gpu(0))
    except Exception as error:
        print(f'as it should, {error!r}')
    else:
        raise AssertionError('a command that fails has to raise')
    await flow.shutdown()
    print('all workflows right')


asyncio.run(main())
