"""The result of a round: the promises that did not hold, each with a sentence for everything that broke it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

from fault_matrix import workload
from fault_matrix.application import HangError, LossError
from fault_matrix.run import Run
from fault_matrix.verdict import contradictions, losses, repeated, told, wrongly_stored

import radical.pilot as rp
from chaos_rounds.plan import AGENT, JOB, KILL, RANK, Event, Plan
from chaos_rounds.round import Round
from rp_api import states

LOST, TWICE, HUNG, LEFT, UNTOLD = 'lost', 'twice', 'hung', 'left', 'untold'
PROMISES = (LOST, TWICE, HUNG, LEFT, UNTOLD)
"""Tasks lost, tasks run more often than they may, rounds that hung, processes and files left, tasks with states that
callbacks were not told, or were told wrongly."""

Broken = dict[str, list[str]]

_WAY = [state for state in states.TASK.names if state != rp.NEW and state not in rp.FINAL]
"""The states that every task passes before its final one."""


def play(run: Run, plan: Plan, span: float) -> tuple[list[Event], Broken]:
    """Play a round to its end: what happened, and what did not hold."""
    game = Round(run, plan, span)
    try:
        game.play()
    except HangError as error:
        return game.happened, {HUNG: [str(error)]}
    except LossError as error:
        return game.happened, {LOST: [str(error)]}
    return game.happened, judge(run, game.happened, stored=not game.closed_before)


def judge(run: Run, happened: Sequence[Event] = (), *, stored: bool = True) -> Broken:
    """What did not hold in a round that has come to its end.

    `stored`: whether what is stored is that of the tasks' session, and not of another one after it. An executor gives
    its programs uids of its own.
    """
    killed = {event.victim for event in happened if event.action == KILL}
    lost = losses(run, agent_dies=AGENT in killed or any(event.victim == JOB for event in happened))
    if stored and run.config['kind'] != workload.EXECUTOR:
        lost += wrongly_stored(run)
    return {LOST: lost, TWICE: repeated(run, calls=RANK in killed), LEFT: run.left(),
            UNTOLD: [*contradictions(run), *_untold(run)]}


def _untold(run: Run) -> Iterator[str]:
    """No application is told a state twice, or after a later one; and some application is told each state."""
    with open(run.config['results']) as file:
        results = json.load(file)['tasks']
    heard = defaultdict(set)
    again = {uid for uid, result in results.items() if result['attempts'] + result['losses'] > 1}
    for name, announced in told(run).items():
        last: dict[str, int] = {}
        for uid, state in announced:
            heard[uid].add(state)
            value = states.task_value(state)
            if value <= last.get(uid, -1) and uid not in again:
                yield f'{name}: {uid} was told to be {state} twice, or too late'
            last[uid] = value
    for uid, result in results.items():
        # a task that has gone with its pilot has not passed all of them, and an executor tells ends only
        way = _WAY if result['exit_code'] is not None and run.config['kind'] != workload.EXECUTOR else []
        missing = [state for state in (*way, result['state']) if state not in heard[uid]]
        if missing:
            yield f'{uid}: no callback was told {", ".join(missing)}'
