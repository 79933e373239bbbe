"""The laws of the state models."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api import states
from rp_api.errors import PilotError, StateError
from rp_api.states import PILOT, TASK, State, StateModel

MODELS = pytest.mark.parametrize('model', [PILOT, TASK], ids=['pilot', 'task'])

NUMBERS = {
    'pilot': {None: -1, 'NEW': 0, 'PMGR_LAUNCHING_PENDING': 1, 'PMGR_LAUNCHING': 2, 'PMGR_ACTIVE_PENDING': 3,
              'PMGR_ACTIVE': 4, 'DONE': 5, 'FAILED': 5, 'CANCELED': 5},
    'task': {None: -1, 'NEW': 0, 'TMGR_SCHEDULING_PENDING': 1, 'TMGR_SCHEDULING': 2, 'TMGR_STAGING_INPUT_PENDING': 3,
             'TMGR_STAGING_INPUT': 4, 'AGENT_STAGING_INPUT_PENDING': 5, 'AGENT_STAGING_INPUT': 6,
             'AGENT_SCHEDULING_PENDING': 7, 'AGENT_SCHEDULING': 8, 'AGENT_EXECUTING_PENDING': 9, 'AGENT_EXECUTING': 10,
             'AGENT_STAGING_OUTPUT_PENDING': 11, 'AGENT_STAGING_OUTPUT': 12, 'TMGR_STAGING_OUTPUT_PENDING': 13,
             'TMGR_STAGING_OUTPUT': 14, 'DONE': 15, 'FAILED': 15, 'CANCELED': 15},
}

models = st.sampled_from([PILOT, TASK])


@st.composite
def journeys(draw: st.DrawFn) -> tuple[StateModel, list[str]]:
    """A model and reports of its states, in any order and with gaps; the last word is left to the caller."""
    model = draw(models)
    return model, draw(st.lists(st.sampled_from(model.names), max_size=30))


def follow(model: StateModel, reports: list[str]) -> tuple[str | None, list[str]]:
    """The state after all reports, and all that was announced; refused reports are passed over."""
    current: str | None = None
    announced: list[str] = []
    for report in reports:
        try:
            current, passed = model.progress(current, report)
        except StateError:
            continue
        announced += passed
    return current, announced


def check(model: StateModel) -> None:
    """Verify the invariants of the tables of a model; raise `StateError` for the first violation."""
    top = model.rows[-1].value
    line = [row.value for row in model.rows if row.name not in states.FINAL]
    require(line == list(range(top)), f'the numbers {line} do not count from 0 to {top - 1}')
    ends = [row.name for row in model.rows if row.value == top]
    require(ends == states.FINAL, f'{ends} share the highest number, not {states.FINAL}')
    require(len(set(model.names)) == len(model.rows), 'a state is listed twice')
    for current, target in product(model.values, model.names):
        check_step(model, current, target)


def check_step(model: StateModel, current: str | None, target: str) -> None:
    step = model._steps.get((current, target))
    move = f'{current} -> {target}'
    if step is None:
        require(model.is_final(current) and model.is_final(target) and current != target, f'{move} is missing')
        return
    new, passed = step[0], list(step[1])
    require(new == (passed[-1] if passed else current), f'{move} ends in {new} but announces {passed}')
    if new == current:
        old_news = model.values[target] < model.values[current] or target == current
        require(old_news and not passed, f'{move} is ignored')
        return
    require(new == target, f'{move} ends in {new}')
    if target in (states.FAILED, states.CANCELED) or model.is_final(current):
        require(passed == [target], f'{move} announces {passed}')
    else:
        numbers = [model.values[state] for state in passed]
        wanted = list(range(model.values[current] + 1, model.values[target] + 1))
        require(numbers == wanted, f'{move} announces {passed}')


def require(holds: bool, complaint: str) -> None:
    if not holds:
        raise StateError(f'the state table is broken: {complaint}')


@MODELS
def test_numbers(model: StateModel) -> None:
    assert dict(model.values) == NUMBERS[model.name]
    assert [model.value(name) for name in model.names] == [NUMBERS[model.name][name] for name in model.names]


def test_module_functions_answer_for_their_model() -> None:
    assert states.pilot_value('DONE') == 5
    assert states.task_value('DONE') == 15
    assert states.pilot_value(None) == states.task_value(None) == -1
    assert states.progress(PILOT, 'NEW', 'PMGR_LAUNCHING') == PILOT.progress('NEW', 'PMGR_LAUNCHING')


@MODELS
def test_tables_are_sound_and_documented(model: StateModel) -> None:
    check(model)
    assert all(row.module and row.component and row.meaning for row in model.rows)
    assert all(getattr(states, name) == name for name in model.names)


def test_check_finds_a_gap_in_the_numbers() -> None:
    rows = tuple(row._replace(value=row.value + 1) if row.value > 2 else row for row in states.PILOT_STATES)
    with pytest.raises(StateError, match='do not count from 0'):
        check(StateModel('pilot', rows, ()))


def test_check_finds_a_final_state_with_a_number_of_its_own() -> None:
    rows = (*states.PILOT_STATES[:-1], State('CANCELED', 6, 'm', 'c', 'm'))
    with pytest.raises(StateError, match='broken'):
        check(StateModel('pilot', rows, ()))


def test_check_finds_a_state_that_is_listed_twice() -> None:
    rows = (states.PILOT_STATES[0], states.PILOT_STATES[0]._replace(value=1), *states.PILOT_STATES[2:])
    with pytest.raises(StateError, match='listed twice'):
        check(StateModel('pilot', rows, ()))


@pytest.mark.parametrize(('key', 'step', 'complaint'), [
    (('NEW', 'PMGR_LAUNCHING'), None, 'is missing'),
    (('NEW', 'PMGR_LAUNCHING'), ('PMGR_LAUNCHING', ('PMGR_LAUNCHING',)), 'announces'),
    (('NEW', 'PMGR_LAUNCHING'), ('PMGR_LAUNCHING', ()), 'but announces'),
    (('NEW', 'PMGR_LAUNCHING'), ('NEW', ()), 'is ignored'),
    (('PMGR_ACTIVE', 'NEW'), ('PMGR_ACTIVE_PENDING', ('PMGR_ACTIVE_PENDING',)), 'ends in'),
    (('NEW', 'FAILED'), ('FAILED', ('PMGR_ACTIVE', 'FAILED')), 'announces'),
])
def test_check_finds_a_wrong_step(key: tuple[str, str], step: tuple[str, tuple[str, ...]] | None,
                                        complaint: str) -> None:
    model = StateModel('pilot', states.PILOT_STATES, PILOT.corrections)
    if step is None:
        del model._steps[key]
    else:
        model._steps[key] = step
    with pytest.raises(StateError, match=complaint):
        check(model)


@MODELS
def test_unknown_states_are_refused_with_the_allowed_ones(model: StateModel) -> None:
    for call in (lambda: model.value('ACTIVE'), lambda: model.progress('ACTIVE', 'DONE'),
                 lambda: model.progress('NEW', 'ACTIVE'), lambda: model.is_final('ACTIVE'),
                 lambda: model.collapse(['ACTIVE', 'NEW'])):
        with pytest.raises(StateError) as caught:
            call()
        assert '[ACTIVE]' in str(caught.value)
        assert ', '.join(model.names) in str(caught.value)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, PilotError)


def test_states_of_the_other_model_and_other_things_are_unknown() -> None:
    with pytest.raises(StateError, match='PMGR_ACTIVE'):
        TASK.progress('NEW', 'PMGR_ACTIVE')
    with pytest.raises(StateError, match='None'):
        TASK.progress('NEW', None)  # type: ignore[arg-type]
    with pytest.raises(StateError, match=r'\[\]'):
        TASK.progress('NEW', [])  # type: ignore[arg-type]
    with pytest.raises(StateError, match=r'\[\]'):
        TASK.value([])  # type: ignore[arg-type]


def test_skipped_states_are_filled_in() -> None:
    assert TASK.progress('AGENT_EXECUTING', 'TMGR_STAGING_OUTPUT_PENDING') == (
        'TMGR_STAGING_OUTPUT_PENDING',
        ['AGENT_STAGING_OUTPUT_PENDING', 'AGENT_STAGING_OUTPUT', 'TMGR_STAGING_OUTPUT_PENDING'])
    assert PILOT.progress('PMGR_LAUNCHING', 'DONE') == ('DONE', ['PMGR_ACTIVE_PENDING', 'PMGR_ACTIVE', 'DONE'])
    assert PILOT.progress(None, 'PMGR_LAUNCHING') == (
        'PMGR_LAUNCHING', ['NEW', 'PMGR_LAUNCHING_PENDING', 'PMGR_LAUNCHING'])


@MODELS
def test_failure_and_cancellation_replay_nothing(model: StateModel) -> None:
    for current, target in product([None, *model.names], ['FAILED', 'CANCELED']):
        if not model.is_final(current):
            assert model.progress(current, target) == (target, [target])


@MODELS
def test_old_news_changes_nothing(model: StateModel) -> None:
    for current, target in product(model.names, model.names):
        if model.value(target) < model.value(current) or target == current:
            assert model.progress(current, target) == (current, [])


@pytest.mark.parametrize(('model', 'allowed'), [
    (TASK, {('CANCELED', 'DONE'), ('CANCELED', 'FAILED')}),
    (PILOT, {('CANCELED', 'DONE'), ('CANCELED', 'FAILED'), ('FAILED', 'DONE'), ('FAILED', 'CANCELED')}),
])
def test_only_late_news_of_the_end_changes_a_final_state(model: StateModel, allowed: set[tuple[str, str]]) -> None:
    for current, target in product(states.FINAL, states.FINAL):
        if current == target:
            assert model.progress(current, target) == (current, [])
        elif (current, target) in allowed:
            assert model.progress(current, target) == (target, [target])
        else:
            with pytest.raises(StateError, match=f'final state {current} cannot become {target}'):
                model.progress(current, target)


def test_the_announced_list_belongs_to_the_caller() -> None:
    TASK.progress('NEW', 'DONE')[1].clear()
    assert len(TASK.progress('NEW', 'DONE')[1]) == 15


@given(journeys())
def test_progress_never_goes_back(journey: tuple[StateModel, list[str]]) -> None:
    model, reports = journey
    current: str | None = None
    for report in reports:
        try:
            new, _ = model.progress(current, report)
        except StateError:
            assert model.is_final(current)
            continue
        assert model.value(new) >= model.value(current)
        assert model.value(new) >= model.value(report)
        current = new


@given(journeys())
def test_each_state_is_announced_once_and_in_order(journey: tuple[StateModel, list[str]]) -> None:
    model, reports = journey
    current, announced = follow(model, reports)
    line = [state for state in announced if not model.is_final(state)]
    assert line == model.names[:len(line)]
    ends = announced[len(line):]
    assert all(model.is_final(state) for state in ends)
    assert announced[-1:] == ([current] if current else [])
    if ends == ['DONE']:
        assert len(line) == model.value('DONE')


@given(models, st.data())
def test_steps_compose(model: StateModel, data: st.DataObject) -> None:
    """Whether news comes one by one or only the last of it arrives, the same is announced."""
    line = [None, *(name for name in model.names if name not in ('FAILED', 'CANCELED'))]
    picked = data.draw(st.lists(st.integers(0, len(line) - 1), min_size=2, unique=True).map(sorted))
    start, *stops = [line[index] for index in picked]
    announced: list[str] = []
    current = start
    for stop in stops:
        assert stop is not None
        current, passed = model.progress(current, stop)
        announced += passed
    assert stops[-1] is not None
    assert (current, announced) == model.progress(start, stops[-1])


@given(journeys())
def test_reports_may_arrive_twice(journey: tuple[StateModel, list[str]]) -> None:
    model, reports = journey
    assert follow(model, reports) == follow(model, [report for report in reports for _ in range(2)])


@pytest.mark.parametrize(('reports', 'end'), [
    (['CANCELED', 'FAILED', 'DONE', 'NEW'], 'DONE'), (['CANCELED', 'NEW', 'FAILED'], 'FAILED'),
    (['AGENT_EXECUTING', 'CANCELED'], 'CANCELED'), (['NEW', 'AGENT_EXECUTING', None], 'AGENT_EXECUTING'),
    ([None], None), ([], None),
])
def test_collapse(reports: list[str | None], end: str | None) -> None:
    assert TASK.collapse(reports) == end
    assert TASK.collapse(reversed(reports)) == end


def test_lists_and_unit_manager_names() -> None:
    assert states.INITIAL == ['NEW']
    assert states.FINAL == ['DONE', 'FAILED', 'CANCELED']
    old = [name for name in vars(states) if name.startswith('UMGR_')]
    assert len(old) == 6
    assert all(getattr(states, name) is getattr(states, name.replace('UMGR_', 'TMGR_')) for name in old)


def test_texts_of_2015_lead_to_states() -> None:
    known = {*PILOT.names, *TASK.names}
    assert set(states.CAMEL_CASE_STATES.values()) <= known
    assert states.CAMEL_CASE_STATES['PendingInputStaging'] == 'TMGR_STAGING_INPUT_PENDING'
    assert states.CAMEL_CASE_STATES['Executing'] == 'AGENT_EXECUTING'
    assert states.CAMEL_CASE_STATES['Done'] == 'DONE'


@pytest.mark.parametrize('wanted', [True, False])
def test_constants_of_2015_exist_on_request(wanted: bool) -> None:
    environ = {name: value for name, value in os.environ.items() if name != 'RP_ENABLE_OLD_DEFINES'}
    if wanted:
        environ['RP_ENABLE_OLD_DEFINES'] = ''
    code = 'from rp_api import states; print([getattr(states, name, None) for name in states.OLD_DEFINES])'
    found = subprocess.run([sys.executable, '-c', code], env=environ, capture_output=True, text=True, check=True)
    expected = list(states.OLD_DEFINES.values()) if wanted else [None] * len(states.OLD_DEFINES)
    assert found.stdout.strip() == str(expected)
