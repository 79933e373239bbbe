"""Apps of Parsl on its RadicalPilotExecutor, configured as Parsl's own tests do."""

import parsl
from parsl.config import Config
from parsl.executors.radical import RadicalPilotExecutor, ResourceConfig


@parsl.python_app
def double(number: int) -> int:
    return 2 * number


@parsl.python_app
def broken() -> None:
    raise ValueError('as it should')


@parsl.bash_app
def shout(text: str, stdout: str = 'shout.out') -> str:
    return f'[[ -n "{text}" ]] && echo {text}'


executor = RadicalPilotExecutor(label='pilot', rpex_cfg=ResourceConfig(), resource='local.localhost', runtime=10,
                                cores=4)
with parsl.load(Config(executors=[executor], usage_tracking=0)):
    futures = [double(number) for number in range(50)]
    assert [future.result() for future in futures] == [2 * number for number in range(50)]
    assert double(double(3)).result() == 12
    assert shout('hello').result() == 0
    failure = broken().exception()
    assert 'as it should' in repr(failure), repr(failure)
print('all results right')
