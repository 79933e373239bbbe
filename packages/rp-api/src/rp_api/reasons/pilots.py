"""Reasons of pilots that do not run, or have failed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rp_api import states
from rp_api.reasons.failed import LIMIT_WORDS
from rp_api.reasons.kinds import AGENT, CANCELED, COORDINATOR, ENDED, KINDS, QUEUE, STEP, UNSCHEDULABLE
from rp_api.reasons.reason import Reason
from rp_api.reasons.symptoms import recognised
from rp_api.reasons.view import View

_REASON = re.compile(r'\bReason=(\S+)')

QUEUE_REASONS: Mapping[str, str] = {
    'Priority': 'other jobs have a higher priority',
    'Resources': 'the nodes that it needs are in use',
    'BeginTime': 'its begin time is not reached',
    'JobHeldUser': 'it is held by its user: release it with `scontrol release`',
    'Reservation': 'its reservation has not begun',
    'ReqNodeNotAvail': 'nodes that it requests are down or reserved, often for maintenance',
    'Licenses': 'a license is not available',
    'QOSMaxJobsPerUserLimit': 'you have as many running jobs as the QOS allows',
    'AssocMaxJobsLimit': 'you have as many running jobs as your account allows',
}
"""What the reasons of Slurm for waiting jobs mean."""


def pilot_reason(pilot: Mapping[str, Any], view: View) -> Reason | None:
    """Return why a pilot does not run; None if it runs."""
    state, uid = pilot['state'], pilot['uid']
    if state == states.PMGR_ACTIVE:
        return None
    if state == states.FAILED:
        return _failed(pilot)
    if state in states.FINAL:
        kind = CANCELED if state == states.CANCELED else ENDED
        said = str(pilot.get('reason') or f'{uid} is {state}')
        return Reason(kind, said if said.startswith(uid) else f'{uid} was {said}'.replace('was was', 'was'), None, {},
                      KINDS[kind].remedy)
    away = view.note('coordinator')
    if away and states.PILOT.value(state) <= states.PILOT.value(states.PMGR_LAUNCHING_PENDING):
        return Reason(COORDINATOR, str(away['sentence']), away.get('since'), {}, KINDS[COORDINATOR].remedy)
    return _before(pilot, (view.note(f'job.{uid}') or {}).get('queue') or {})


def _before(pilot: Mapping[str, Any], queue: Mapping[str, Any]) -> Reason:
    """Return why a pilot is not active yet, given what the batch system tells about its job."""
    uid = pilot['uid']
    if not queue:
        launched = pilot['state'] == states.PMGR_ACTIVE_PENDING
        text = 'its agent is being started' if launched else 'it is being launched'
        return Reason(AGENT if launched else STEP, f'{uid} is not active yet: {text}', None, {},
                      KINDS[AGENT if launched else STEP].remedy)
    words, state, evidence = str(queue.get('words') or ''), queue.get('state'), dict(queue)
    since = queue.get('since')
    if queue.get('trouble'):
        return Reason(QUEUE, f'{uid}: {queue["trouble"]}', since, evidence, 'see whether the batch system works')
    job = f'job {queue["job"]}' if queue.get('job') else 'its job'
    if queue.get('unschedulable'):
        return Reason(UNSCHEDULABLE, f'{uid} cannot start: {job} {_why(words)}', since, evidence,
                      KINDS[UNSCHEDULABLE].remedy)
    if state == 'RUNNING':
        return Reason(AGENT, f'{uid} is not active yet: {job} runs, and its agent is being started', since, evidence,
                      KINDS[AGENT].remedy)
    start = f'; the batch system expects its start at {queue["start"]}' if queue.get('start') else ''
    return Reason(QUEUE, f'{uid} is in the queue: {job} {_why(words)}{start}', since, evidence, KINDS[QUEUE].remedy)


def _why(words: str) -> str:
    """Return the batch system's words about a job that waits, with their meaning."""
    match = _REASON.search(words)
    code = match[1].partition(',')[0].strip('()') if match else ''
    meaning = QUEUE_REASONS.get(code, '')
    return f'waits because {meaning} ({words})' if meaning else f'waits ({words})' if words else 'waits'


def _failed(pilot: Mapping[str, Any]) -> Reason:
    sentence = str(pilot.get('exception') or pilot.get('reason') or f'{pilot["uid"]} has failed')
    detail = str(pilot.get('exception_detail') or '')
    stderr = str(pilot.get('stderr') or '')
    evidence = {name: value for name, value in (('detail', detail), ('lines', stderr)) if value}
    if LIMIT_WORDS.search(sentence):
        kind, cause = 'failed.limit', ''
    else:
        kind, cause = next((found for text in (sentence, stderr, detail) if (found := recognised(text))), ('', ''))
    if not kind or kind == 'failed.exception':
        kind, cause = 'failed.agent', ''
    return Reason(kind, f'{sentence}: {cause}' if cause and cause not in sentence else sentence, None, evidence,
                  KINDS[kind].remedy)
