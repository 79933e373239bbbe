"""Adds to the events of a session those that the durations of radical.analytics start or stop at.

Traces lack them for pilots without a bootstrapper, with less detail (`RADICAL_PILOT_PROFILE=states`), and of tasks that
were interrupted. Recorded events are not changed, except that a pilot is active when its agent gets its first tasks,
also if the client learns of it while they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rp_api import states

Event = list[Any]
"""Time, event, component, thread, uid, state, message, entity type."""

TIME, NAME, UID, STATE, KIND = 0, 1, 4, 5, 7

# pairs of events, the outermost last
_PAIRS = {
    'app_start': 'app_stop', 'rank_start': 'rank_stop', 'exec_start': 'exec_stop', 'launch_start': 'launch_stop',
    'task_run_start': 'task_run_stop', 'unschedule_start': 'unschedule_stop', 'schedule_ok': 'unschedule_stop',
}
# events that traces with less detail leave out, and the nearest ones that these have
_NEAREST = {'launch_start': 'task_run_start', 'exec_start': 'rank_start', 'exec_stop': 'rank_stop',
            'launch_stop': 'task_run_stop', 'unschedule_start': 'unschedule_stop'}
# events of a task that may have been recorded at the same time, in the order in which durations start and stop at them
_ORDER = {name: number for number, name in enumerate((
    'task_start', 'task_mkdir', 'task_mkdir_done', 'task_run_start', 'task_run_ok', 'launch_start', 'launch_pre',
    'launch_submit', 'exec_start', 'exec_pre', 'rank_start', 'app_start', 'app_stop', 'rank_stop', 'exec_post',
    'exec_stop', 'launch_collect', 'launch_post', 'launch_stop', 'task_run_stop', 'unschedule_start',
    'unschedule_stop'), 1)}
_FINAL = frozenset(states.FINAL)


def complete(events: list[Event], pilots: Mapping[str, tuple[float, float]]) -> list[Event]:
    """Return the events of a session with those that are missing, in the order of time.

    Args:
        events: The events, sorted by time.
        pilots: The times of the first and the last event of each pilot's agent.
    """
    added = [event for uid, history in _histories(events).items() for event in _missing(uid, history, pilots)]
    return sorted([*events, *added], key=_order)


def fix_profiles(profile: list[Event]) -> list[Event]:
    """Add, to the events of tasks that failed or were cancelled, the end of each step that was interrupted.

    It ends when the step around it did, or else when the task did.

    Args:
        profile: The events of a session, as from `get_session_profile`; it is changed.

    Returns:
        The same list, in the order of time.
    """
    profile += [event for history in _histories(profile).values() for event in _interrupted(history)]
    profile.sort(key=_order)
    return profile


def _histories(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Return the events of each entity."""
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event[UID], []).append(event)
    return found


def _order(event: Event) -> tuple[float, int]:
    """Return the key by which events are sorted: an entity is new before anything else happens to it."""
    return event[TIME], -1 if event[STATE] == states.NEW else _ORDER.get(event[NAME], 0)


def _missing(uid: str, history: list[Event], pilots: Mapping[str, tuple[float, float]]) -> Iterator[Event]:
    names = {event[NAME] for event in history}
    if 'state' not in names:
        return
    if not any(event[STATE] == states.NEW and event[NAME] == 'state' for event in history):
        yield _like(history[0], history[0][TIME], 'state', states.NEW)
    if uid in pilots:
        _activate(history)
        yield from _bootstrap(history, names, *pilots[uid])
    elif 'schedule_ok' in names:
        ends = list(_interrupted(history))
        yield from ends
        yield from _left_out([*history, *ends])


def _activate(history: list[Event]) -> None:
    """Make a pilot active no later than its agent gets tasks: resources are for startup until then."""
    active = next((event for event in history if event[STATE] == states.PMGR_ACTIVE), None)
    first = next((event[TIME] for event in history if event[NAME] == 'get' and event[STATE] == ''), None)
    if active is not None and first is not None:
        active[TIME] = min(active[TIME], first)


def _bootstrap(history: list[Event], names: Iterable[str], start: float, stop: float) -> Iterator[Event]:
    """Yield the events of the bootstrapper that a pilot lacks; without one, its agent starts and ends the job."""
    begun = next((event[TIME] for event in history if event[NAME] == 'bootstrap_0_start'), start)
    ready = next((event[TIME] for event in history if event[NAME] == 'hostname'), begun)
    for name, time in (('bootstrap_0_start', start), ('bootstrap_0_ok', max(begun, ready)), ('bootstrap_0_stop', stop)):
        if name not in names:
            yield _like(history[0], time, name)


def _left_out(history: list[Event]) -> Iterator[Event]:
    """Yield the events of a task that its trace leaves out, at the time of the nearest ones."""
    names = {event[NAME] for event in history}
    for name, nearest in _NEAREST.items():
        if name not in names:
            yield from (_like(event, event[TIME], name) for event in history if event[NAME] == nearest)


def _interrupted(history: list[Event]) -> Iterator[Event]:
    """Yield the ends of the steps of a task that failed or was cancelled before they ended."""
    final = {event[STATE]: event[TIME] for event in history if event[NAME] == 'state' and event[STATE] in _FINAL}
    if not final.keys() & {states.FAILED, states.CANCELED} or states.DONE in final:
        return
    last = {event[NAME]: event[TIME] for event in history}
    end, added = max(final.values()), set()
    for start, stop in reversed(_PAIRS.items()):
        if start in last and last.get(stop, -1.0) < last[start] and stop not in added:
            added.add(stop)
            yield _like(history[0], max(last[start], end), stop)
        elif stop in last:
            end = min(end, last[stop])


def _like(event: Event, time: float, name: str, state: str = '') -> Event:
    """Return an event of the same entity."""
    return [time, name, '', '', event[UID], state, '', event[KIND]]
