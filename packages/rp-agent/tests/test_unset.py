"""Variables without a value in arguments: which ones the application is told of."""

from __future__ import annotations

from typing import Any

import pytest
from executor_support import a_task

from rp_agent.executor.launching.unset import MOST, UnsetVariables


def told(*descriptions: dict[str, Any]) -> list[str]:
    """The names that the application is told of, in order."""
    sentences: list[str] = []
    variables = UnsetVariables(lambda: {'HOME': '/home'}, sentences.append)
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
    many = [{'arguments': [f'$V{number}']} for number in range(MOST + 5)]
    assert told(*many) == [f'V{number}' for number in range(MOST)]
