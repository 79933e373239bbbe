"""Variables without a value in arguments: which ones the application is told of."""

from __future__ import annotations

from typing import Any

import pytest
from executor_support import a_task

from rp_agent.executor.launching.text_notices import NAMES_MAX, TextNotices
from rp_api import states


def told(*descriptions: dict[str, Any]) -> list[str]:
    """The names that the application is told of, in order."""
    sentences: list[str] = []
    variables = TextNotices(lambda: {'HOME': '/home'}, sentences.append)
    for number, description in enumerate(descriptions):
        variables.look([a_task(uid=f'task.{number}', **description)])
    return [sentence.partition(': $')[2].partition(' ')[0] for sentence in sentences]


@pytest.mark.parametrize(('description', 'names'), [
    ({'arguments': ['$A', 'x${B}y', '$A$HOME']}, ['A', 'B']),
    ({'arguments': ['$A$B'], 'environment': {'A': 'x'}}, ['B']),
    ({'arguments': ['$A$1'], 'literal_arguments': True}, []),
    ({'arguments': [r'\$A', '$(echo $B)', '${C:-d}', '100$']}, []),
    ({'arguments': ['$RP_TASK_ID$PWD$OMP_NUM_THREADS$CUDA_VISIBLE_DEVICES$SLURM_PROCID$PMI_RANK']}, []),
    ({'arguments': ['$A{print $2}'], 'pre_exec': ['A=1']}, ['2']),
    ({'arguments': ['$A$@'], 'named_env': 'mine'}, ['@']),
    ({'arguments': ['$A'], 'environment': 5}, []),
])
def test_names(description: dict[str, Any], names: list[str]) -> None:
    assert told(description) == names


def test_each_name_once_and_not_too_many() -> None:
    assert told({'arguments': ['$A']}, {'arguments': ['$A$B']}) == ['A', 'B']
    many = [{'arguments': [f'$V{number}']} for number in range(NAMES_MAX + 5)]
    assert told(*many) == [f'V{number}' for number in range(NAMES_MAX)]


def notices(*descriptions: dict[str, Any]) -> list[str]:
    sentences: list[str] = []
    texts = TextNotices(lambda: {'HOME': '/home'}, sentences.append)
    for number, description in enumerate(descriptions):
        texts.look([a_task(uid=f'task.{number}', **description)])
    return sentences


def test_an_executable_that_is_a_command_line_is_told_once() -> None:
    command, = notices({'executable': 'echo'}, {'executable': 'a b', 'literal_arguments': True}, {'executable': 5},
                       {'executable': '/bin/echo a'}, {'executable': '$HOME/x'})
    assert command.startswith("task.3: its executable '/bin/echo a' is not one word and no existing path")
    assert 'literal_arguments=True' in command


def test_a_command_in_the_environment_is_told_once() -> None:
    value, = notices({'environment': {'A': '$HOME'}}, {'environment': {'A': '`x`'}, 'literal_arguments': True},
                     {'environment': {'A': 'x', 'B': '$(date)'}}, {'environment': {'A': '`x`'}},
                     {'environment': {'A': 5}})
    assert value.startswith('task.2: the value of B in its environment')
    assert 'pre_exec' in value


def test_texts_that_cannot_be_looked_at_fail_their_task() -> None:
    class Odd(str):
        def __str__(self) -> str:
            raise ValueError('odd')

    tasks = [a_task(uid='odd', arguments=[Odd('$A')]), a_task(uid='good', arguments=['$B'])]
    sentences: list[str] = []
    TextNotices(dict, sentences.append).look(tasks)
    assert [task.target_state for task in tasks] == [states.FAILED, None]
    assert len(sentences) == 1
