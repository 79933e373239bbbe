"""Reasons of tasks that wait: for a pilot, a place, or something else that has to come first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from rp_api import states
from rp_api.description.after import conditions
from rp_api.reasons import kinds as k
from rp_api.reasons.kinds import KINDS
from rp_api.reasons.pilots import pilot_reason
from rp_api.reasons.places import needs_of, needs_text, place
from rp_api.reasons.reason import Reason
from rp_api.reasons.view import View
from rp_api.reasons.wait import WAITS_FOR, no_master, read_wait

MOST_LOOKED_AT = 1000
"""Tasks that a task depends on and that are looked at: their number is exact up to this one."""

_value = states.TASK.value
_STAGES = _value(states.AGENT_STAGING_INPUT)
_SCHEDULED = _value(states.AGENT_SCHEDULING_PENDING)
_RUNS = _value(states.AGENT_EXECUTING)
_REPORTED = (states.AGENT_SCHEDULING, states.AGENT_EXECUTING)
_WITHOUT_PILOT = 'returned'


def waits(task: Mapping[str, Any], view: View) -> Reason | None:
    """Return what a task that is not final waits for; None if it runs."""
    value = _value(task['state'])
    if value > _RUNS:
        return _reason(k.OUTPUT, 'its output files are being transferred')
    if value < _STAGES or not task.get('pilot'):   # a task that its pilot has lost keeps its state
        away = view.note('coordinator')
        return _before_agent(task, view) if not away else _reason(
            k.COORDINATOR, str(away['sentence']), away.get('since'))
    if value == _RUNS:
        reported = _reported(task)   # a wait for a place is over, although nothing was reported since
        return None if reported is None or reported.kind == k.PLACE else reported
    if task['state'] == states.AGENT_STAGING_INPUT:
        return _input(task, 'the agent stages its input files')
    reported = _reported(task) if task['state'] in _REPORTED else None
    if reported is not None and reported.kind != k.PLACE:
        return reported
    if (found := master_wait(task, view)) is not None:
        return found
    if _is_call(task):
        return _step(task, 'its master passes it to a worker next')
    if value <= _value(states.AGENT_SCHEDULING):
        return place(task, _pilot(view, task.get('pilot')), reported)
    return _step(task, 'it has a place, and is started next')


def _before_agent(task: Mapping[str, Any], view: View) -> Reason:
    """Return why a task has not come to its agent."""
    pilot = task.get('pilot')
    if not pilot and (gone := task.get(_WITHOUT_PILOT)):
        return _another_pilot(str(gone), task, view)
    found = dependency(task, view) or (None if pilot else unbound(task, view))
    if found is not None:
        return found
    if task['state'] == states.TMGR_STAGING_INPUT:
        return _input(task, 'the application transfers its input files')
    record = _pilot(view, pilot)
    if record is not None and (why := pilot_reason(record, view)) is not None:
        return _reason(k.PILOT, f'waits for {pilot}: {why.sentence}', why.since, {'pilot': pilot, 'kind': why.kind})
    if (found := master_wait(task, view)) is not None:
        return found
    return _step(task, f'the agent of {pilot} takes it next' if pilot else 'it is bound to a pilot next')


def _reported(task: Mapping[str, Any]) -> Reason | None:
    """Return the wait that the agent has reported."""
    wait = read_wait(task.get(WAITS_FOR))
    return None if wait is None else _reason(wait.kind, f'waits for {wait.text}', wait.since)


def _input(task: Mapping[str, Any], who: str) -> Reason:
    """Return how much of the input of a task is left; `progress` is known to the application that transfers it."""
    left = task.get('progress') or {}
    count = len(task['description'].get('input_staging') or ())
    text = f'{who}: {left["left"]} of {left["files"]} are left' if left else f'{who} ({count})' if count else who
    if left.get('bytes'):
        text += f', {left["bytes_left"] / 1e6:.3g} of {left["bytes"] / 1e6:.3g} MB'
    return _reason(k.INPUT, text, left.get('since'), dict(left) or {'directives': count})


def dependency(task: Mapping[str, Any], view: View) -> Reason | None:
    """Return which tasks a task is after that have not ended; None if all have."""
    after = task['description'].get('after') or []
    live = [(uid, other['state']) for uid, _ in islice(conditions(after), MOST_LOOKED_AT)
            if (other := view.task(uid)) is not None and other['state'] not in states.FINAL]
    if not live:
        return None
    uid, state = live[0]
    more = f' and {len(live) - 1} more tasks' if len(live) > 1 else ''
    root = _root(uid, view)
    because = waits(root, view) if root is not None else None
    evidence: dict[str, Any] = {'tasks': [other for other, _ in live[:10]], 'count': len(live)}
    if root is not None and because is not None and because.kind not in (k.DEPENDENCY, k.STEP):
        evidence['root'] = f'{root["uid"]}: {because.sentence}'
    return _reason(k.DEPENDENCY, f'waits for {uid} ({state}){more}', None, evidence)


def _root(uid: str, view: View) -> Mapping[str, Any] | None:
    """Return the task at the beginning of a chain of dependencies; None if it is too long."""
    for _ in range(MOST_LOOKED_AT):
        task = view.task(uid)
        live = (other for other, _ in islice(conditions((task or {}).get('description', {}).get('after') or []),
                                             MOST_LOOKED_AT) if _is_live(other, view))
        following = next(live, None)
        if following is None:
            return task
        uid = following
    return None


def _is_live(uid: str, view: View) -> bool:
    task = view.task(uid)
    return task is not None and task['state'] not in states.FINAL


def unbound(task: Mapping[str, Any], view: View) -> Reason | None:
    """Return why a task is bound to no pilot; None if it is about to be bound."""
    tmgr, wanted = task.get('tmgr'), str(task['description'].get('pilot') or '')
    note = view.note(str(tmgr)) or {}
    known = {pilot['uid']: pilot for pilot in view.pilots()}
    mine = [known[uid] for uid in note.get('pilots', ()) if uid in known]
    live = [pilot for pilot in mine if pilot['state'] not in states.FINAL]
    if not live:
        last = _end(note, mine, view)
        return _reason(k.MANAGER, f'waits for a pilot: {tmgr} has none' + (f' any more, {last}' if last else ''))
    if (found := master_wait(task, view)) is not None:
        return found
    if wanted and not {wanted, wanted.rpartition('.')[0]} & set(note['pilots']):   # a pilot, or a partition of one
        return _reason(k.MANAGER, f'waits for {wanted}, which is no pilot of {tmgr}', None, {'pilots': note['pilots']})
    asked = [known[wanted]] if wanted in known else live
    active = [pilot for pilot in asked if pilot['state'] == states.PMGR_ACTIVE]
    if not active:
        return _inactive(asked, view)
    if note.get('scheduler') == 'backfilling':
        return _full(task, active, live)
    return _input(task, 'the application transfers its input files') if _stages(task) else None


def _full(task: Mapping[str, Any], active: Sequence[Mapping[str, Any]], live: Sequence[Mapping[str, Any]]) -> Reason:
    """Return why the backfilling scheduler has not bound a task although a pilot is active."""
    needs = needs_of(task['description'])
    uids = [pilot['uid'] for pilot in active]
    size = {pilot['uid']: details for pilot in active if (details := pilot.get('resource_details'))}
    ranks = needs.get('ranks', 1)
    cores, gpus = ranks * needs.get('cores_per_rank', 1), ranks * needs.get('gpus_per_rank', 0)
    evidence = {'needs': needs, 'pilots': uids}
    large = [uid for uid in uids if uid not in size or (size[uid]['cores'] >= cores and size[uid]['gpus'] >= gpus)]
    if large:
        has = ' and '.join(large[:3]) + (' have' if len(large) > 1 else ' has')
        return _reason(k.PLACE, f'needs {needs_text(needs)}, and {has} as many tasks as can run there at once', None,
                       evidence)
    others = [pilot['uid'] for pilot in live if pilot['uid'] not in uids]
    there = f'; it waits for {others[0]}' if others else ''
    return _reason(k.PLACE, f'needs {needs_text(needs)}, which {" and ".join(uids[:3])} cannot hold{there}', None,
                   evidence)


def _inactive(pilots: Sequence[Mapping[str, Any]], view: View) -> Reason:
    """Return the reason of the pilot that has come the furthest."""
    pilot = max(pilots, key=lambda each: states.PILOT.value(each['state']) % states.PILOT.value(states.DONE))
    why = pilot_reason(pilot, view)
    others = f' or {len(pilots) - 1} others' if len(pilots) > 1 else ''
    return _reason(k.PILOT, f'waits for {pilot["uid"]}{others}: {why.sentence if why else pilot["state"]}',
                   why.since if why else None, {'pilots': [each['uid'] for each in pilots[:10]],
                                                'kind': why.kind if why else ''})


def _another_pilot(gone: str, task: Mapping[str, Any], view: View) -> Reason:
    """Return why a task runs on its pilot no more, and what it waits for now."""
    record = _pilot(view, gone)
    why = pilot_reason(record, view) if record is not None and record['state'] in states.FINAL else None
    found = dependency(task, view) or unbound(task, view)
    now = '' if found is None or found.kind == k.MANAGER else f'; it {found.sentence}'
    return _reason(k.PILOT, f'waits for another pilot: {why.sentence if why else f"{gone} has given it back"}{now}',
                   None, {'pilot': gone})


def master_wait(task: Mapping[str, Any], view: View) -> Reason | None:
    """Return why the RAPTOR master of a task does not take it; None if it does, or there is none to wait for."""
    uid = str(task['description'].get('raptor_id') or '')
    if not uid:
        return None
    master = view.task(uid)
    if master is None:
        return _reason(k.MASTER, f'waits for {no_master(uid)}', None, {'master': uid})
    if master['state'] in states.FINAL:
        return None
    wait = waits(master, view) if not master['description'].get('raptor_id') else None
    if wait is None:
        return None if master['state'] == states.AGENT_EXECUTING else _reason(
            k.MASTER, f'waits for RAPTOR master {master["uid"]} (is {master["state"]})')
    text = wait.sentence.removeprefix('waits for ')
    return _reason(k.MASTER, f'waits for RAPTOR master {master["uid"]} ({text})', wait.since,
                   {'master': master['uid'], 'kind': wait.kind})


def _end(note: Mapping[str, Any], mine: Iterable[Mapping[str, Any]], view: View) -> str:
    """Return how a task manager has lost its last pilot; empty if it had none."""
    if note.get('last'):
        return str(note['last'])
    ends = [why.sentence for pilot in mine if (why := pilot_reason(pilot, view)) is not None]
    return ends[-1] if ends else ''


def _pilot(view: View, uid: str | None) -> Mapping[str, Any] | None:
    return next((pilot for pilot in view.pilots() if pilot['uid'] == uid), None) if uid else None


def _is_call(task: Mapping[str, Any]) -> bool:
    """Return whether a task is run by a RAPTOR master."""
    return bool(task['description'].get('raptor_id')) and task['description'].get('mode') != 'raptor.worker'


def _stages(task: Mapping[str, Any]) -> bool:
    return bool(task['description'].get('input_staging'))


def _step(task: Mapping[str, Any], text: str) -> Reason:
    return _reason(k.STEP, text, None, {'state': task['state']})


def _reason(kind: str, sentence: str, since: float | None = None, evidence: Mapping[str, Any] | None = None) -> Reason:
    return Reason(kind, sentence, since, evidence or {}, KINDS[kind].remedy)
