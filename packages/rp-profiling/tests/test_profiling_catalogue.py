"""The event catalogue: complete against the event model, and consistent in itself."""

from __future__ import annotations

import pytest

from rp_profiling.catalogue import (
    ALL_COMPONENTS,
    ALL_PROFILES,
    COMPONENTS,
    CONDITIONS,
    DETAILS,
    EVENTS,
    LEFT_OUT,
    ORDERS,
    ORIGINS,
    PILOT_STATES,
    STATES,
    TASK_STATES,
    Alt,
    Event,
    Opt,
    PartialOrder,
    Seq,
    Star,
    Step,
    event,
    events_of,
    orders_of,
)
from rp_profiling.catalogue.page import page
from rp_profiling.levels import STATES as LEAST

# component: the events of the event model that it records
MODEL = """
All Components: get advance publish put lost drop component_init component_final
Session: session_start session_close session_stop session_fetch_start session_fetch_stop
    config_parser_start config_parser_stop
PilotManager: setup_done
PMGRLaunchingComponent: staging_in_start staging_in_stop submission_start submission_stop
Pilot: staging_in_start staging_in_fail staging_in_stop
TaskManager: setup_done get
TMGRSchedulingComponent:
TMGRStagingInputComponent: create_sandbox_start create_sandbox_stop staging_in_start staging_in_stop
    staging_in_tar_start staging_in_tar_stop
bootstrap_0: bootstrap_0_start tunnel_setup_start tunnel_setup_stop ve_setup_start ve_create_start
    ve_activate_start ve_activate_stop ve_update_start ve_create_stop rp_install_start rp_install_stop
    ve_setup_stop cleanup_start cleanup_stop bootstrap_0_stop
agent_0: hostname cmd get dvm_start dvm_uri dvm_ready dvm_stop dvm_fail
AgentStagingInputComponent: staging_in_start staging_in_skip staging_in_fail staging_in_stop
AgentSchedulingComponent: schedule_try schedule_fail schedule_ok unschedule_start unschedule_stop
AgentExecutingComponent: task_start task_mkdir task_mkdir_done task_run_start task_run_ok launch_start
    launch_pre launch_submit exec_start exec_pre rank_start app_start app_* app_stop rank_stop exec_post
    exec_stop launch_collect launch_post launch_stop task_run_stop task_run_cancel_start
    task_run_cancel_stop
AgentStagingOutputComponent: staging_stdout_start staging_stdout_stop staging_stderr_start
    staging_stderr_stop staging_uprof_start staging_uprof_stop staging_out_start staging_out_skip
    staging_out_fail staging_out_stop
TMGRStagingOutputComponent: staging_out_start staging_out_stop
UpdateWorker: update_request update_pushed
All Profiles: sync_abs END
"""


# events that the event model lacks, by where they come from and who records them
ADDED = {
    ('in use', ALL_COMPONENTS): 'bridge_start bridge_stop comp_start comp_stop',
    ('in use', ALL_PROFILES): 'sync_rel',
    ('RADICAL-Pilot 2', ALL_PROFILES): 'trace_detail',
    ('in use', 'Session'): 'session_ok',
    ('in use', 'Pilot'): 'staging_out_start staging_out_fail staging_out_stop',
    ('in use', 'bootstrap_0'): 'bootstrap_0_ok pre_bootstrap_0_start pre_bootstrap_0_stop pre_bootstrap_2_start '
                               'pre_bootstrap_2_stop untar_start untar_stop gtod_start gtod_stop killme sigterm '
                               'sigkill agent_gone agent_final',
    ('in use', 'agent_0'): 'sub_agent_stop flux_start flux_start_ok',
    ('in use', 'AgentExecutingComponent'): 'task_timeout',
    ('in use', 'AgentStagingOutputComponent'): 'staging_ofile_start staging_ofile_stop',
    ('event model', 'bootstrap_0'): 've_update_stop',   # named ve_update_start there
    ('event model', 'PMGRLaunchingComponent'): 'get publish put',   # the model has them for all components
    ('event model', 'TMGRStagingOutputComponent'): 'drop',
    ('RADICAL-Pilot 2', 'PMGRLaunchingComponent'): 'staging_in_fail',
    ('RADICAL-Pilot 2', 'TaskManager'): 'cache_hit put',
    ('RADICAL-Pilot 2', 'TMGRStagingInputComponent'): 'staging_in_fail',
    ('RADICAL-Pilot 2', 'TMGRStagingOutputComponent'): 'staging_out_fail',
    ('RADICAL-Pilot 2', 'agent_0'): 'resources partition_start partition_ready partition_stop signal node_lost '
                                    'dependency_wait dependency_ok',
    ('RADICAL-Pilot 2', 'AgentSchedulingComponent'): 'task_retry',
    ('RADICAL-Pilot 2', 'Coordination'): 'update_refused',
}


def parse_model(text: str) -> dict[str, set[str]]:
    model: dict[str, set[str]] = {}
    for line in text.strip().splitlines():
        if not line.startswith(' '):
            component, _, line = line.partition(':')
            names = model[component] = set()
        names.update(line.split())
    return model


EVENT_MODEL = parse_model(MODEL)


@pytest.mark.parametrize('component', EVENT_MODEL)
def test_the_catalogue_has_every_event_of_the_model(component: str) -> None:
    assert EVENT_MODEL[component] <= {each.name for each in events_of(component)}


def test_what_the_model_lacks_says_where_it_comes_from() -> None:
    added = {
        (each.component, each.name): each.origin
        for each in EVENTS
        if each.name not in EVENT_MODEL.get(each.component, set())
    }
    wanted = {(component, name): origin for (origin, component), names in ADDED.items() for name in names.split()}
    clones = {(ALL_COMPONENTS, f'{what} clone'): 'advanced profiling' for what in ('add', 'drop')}
    assert added == wanted | clones
    assert set(COMPONENTS) == {*EVENT_MODEL, 'Coordination'}


@pytest.mark.parametrize('each', EVENTS, ids=lambda each: f'{each.component}-{each.name}')
def test_an_event_is_described_in_known_terms(each: Event) -> None:
    assert each.meaning
    assert each.origin in ORIGINS
    assert not each.condition or each.condition in CONDITIONS
    assert each.optional or not each.condition
    assert each.detail in DETAILS
    assert all(pattern.endswith('.prof') for pattern in each.profiles)


def test_less_detail_leaves_out_all_events_of_a_name_or_none() -> None:
    """A tracer knows the name of an event, and not which component it is for the catalogue."""
    details = {each.name: {other.detail for other in EVENTS if other.name == each.name} for each in EVENTS}
    assert {name: found for name, found in details.items() if LEAST in found and len(found) > 1} == {}
    assert {name for name, found in details.items() if LEAST not in found} == LEFT_OUT


def test_an_event_that_nothing_records_may_be_missing_and_says_why() -> None:
    unrecorded = [each for each in EVENTS if each.unrecorded]
    assert unrecorded
    assert all(each.optional and f'not recorded: {each.unrecorded}' in page() for each in unrecorded)


def test_only_events_of_bulks_and_the_two_activations_are_listed_twice() -> None:
    keys = [(each.component, each.name) for each in EVENTS]
    assert {key for key in keys if keys.count(key) > 1} == {
        ('TaskManager', 'get'),
        ('agent_0', 'get'),
        ('UpdateWorker', 'update_pushed'),
        ('bootstrap_0', 've_activate_start'),
        ('bootstrap_0', 've_activate_stop'),
    }


@pytest.mark.parametrize('order', ORDERS, ids=lambda order: f'{order.component}-{order.scope}')
def test_an_order_names_only_events_that_its_component_records(order: PartialOrder) -> None:
    assert order.names()
    for name in order.names():
        assert event(order.component, name).name == name


@pytest.mark.parametrize(
    ('component', 'scopes'),
    {
        ALL_COMPONENTS: ['component', 'entity'],
        ALL_PROFILES: ['profile'],
        'Session': ['session'],
        'PilotManager': [],
        'PMGRLaunchingComponent': ['pilot'],
        'Pilot': ['file', 'file'],
        'TaskManager': [],
        'TMGRSchedulingComponent': [],
        'TMGRStagingInputComponent': ['task', 'file'],
        'bootstrap_0': ['pilot'],
        'agent_0': ['instance', 'instance', 'task', 'pilot'],
        'AgentStagingInputComponent': ['file'],
        'AgentSchedulingComponent': ['task'],
        'AgentExecutingComponent': ['task', 'raptor task', 'task'],
        'AgentStagingOutputComponent': ['task', 'file'],
        'TMGRStagingOutputComponent': ['file'],
        'UpdateWorker': ['state update'],
        'Coordination': [],
    }.items(),
)
def test_each_component_has_the_orders_of_the_model(component: str, scopes: list[str]) -> None:
    assert [order.scope for order in orders_of(component)] == scopes


def words(step: Step) -> list[list[str]]:
    """The shortest words of a pattern: a starred step is left out, an optional one is there or not."""
    if isinstance(step, str):
        return [[step]]
    if isinstance(step, Star):
        return [[]]
    if isinstance(step, Opt):
        return [*words(step.step), []]
    if isinstance(step, Alt):
        return [word for each in step.steps for word in words(each)]
    result: list[list[str]] = [[]]
    for each in step.steps:
        result = [[*head, *tail] for head in result for tail in words(each)]
    return result


def test_patterns_are_made_of_the_five_kinds_of_steps_and_can_be_walked() -> None:
    (staging,) = orders_of('AgentStagingInputComponent')
    assert words(staging.pattern) == [
        ['staging_in_skip'],
        ['staging_in_start', 'staging_in_fail'],
        ['staging_in_start', 'staging_in_stop'],
    ]
    (profile,) = orders_of(ALL_PROFILES)
    assert profile.pattern == Seq(('sync_abs', Star('*'), 'END'))


def test_what_a_plain_bootstrap_may_leave_out_is_optional() -> None:
    (order,) = orders_of('bootstrap_0')
    shortest = min(words(order.pattern), key=len)
    assert shortest == ['bootstrap_0_start', 'bootstrap_0_stop']
    longest = max(words(order.pattern), key=len)
    assert longest.count('ve_activate_start') == 2
    for name in set(longest) - set(shortest):
        assert event('bootstrap_0', name).optional, name


def test_an_event_is_found_with_its_component_or_among_those_of_all() -> None:
    assert event('Pilot', 'staging_in_start').condition == 'PILOT-DS'
    assert event('AgentStagingInputComponent', 'staging_in_start').condition == 'Task-DS'
    assert event('AgentSchedulingComponent', 'advance').component == ALL_COMPONENTS
    assert event('bootstrap_0', 'END').component == ALL_PROFILES
    assert event('agent_0', 'get').fields.msg == 'bulk size: %d'
    assert event('TMGRSchedulingComponent', 'component_init').fields.uid == ''


def test_a_family_covers_the_events_of_applications() -> None:
    assert event('AgentExecutingComponent', 'app_step_17').name == 'app_*'
    assert event('AgentExecutingComponent', 'app_start').name == 'app_start'


def test_unknown_names_are_refused() -> None:
    with pytest.raises(KeyError, match='no event'):
        event('agent_0', 'app_start')
    with pytest.raises(ValueError, match=r"'agent_1'.*agent_0"):
        events_of('agent_1')
    with pytest.raises(ValueError, match="'agent_1'"):
        orders_of('agent_1')


def test_the_states_of_the_two_models_are_there_in_order() -> None:
    assert ' '.join(state.name for state in PILOT_STATES) == (
        'NEW PMGR_LAUNCHING_PENDING PMGR_LAUNCHING PMGR_ACTIVE_PENDING PMGR_ACTIVE DONE CANCELED FAILED'
    )
    assert ' '.join(state.name for state in TASK_STATES) == (
        'NEW TMGR_SCHEDULING_PENDING TMGR_SCHEDULING TMGR_STAGING_INPUT_PENDING TMGR_STAGING_INPUT '
        'AGENT_STAGING_INPUT_PENDING AGENT_STAGING_INPUT AGENT_SCHEDULING_PENDING AGENT_SCHEDULING '
        'AGENT_EXECUTING_PENDING AGENT_EXECUTING AGENT_STAGING_OUTPUT_PENDING AGENT_STAGING_OUTPUT '
        'TMGR_STAGING_OUTPUT_PENDING TMGR_STAGING_OUTPUT DONE CANCELED FAILED'
    )
    assert {state.entity for state in PILOT_STATES} == {'pilot'}
    assert {state.entity for state in TASK_STATES} == {'task'}


def test_each_state_is_recorded_in_a_file_that_holds_advance_events() -> None:
    profiles = set(event(ALL_COMPONENTS, 'advance').profiles)
    for state in STATES:
        assert state.action
        assert state.profiles
        assert profiles.issuperset(state.profiles), state.name
        assert set(state.sandboxes) <= {'client', 'agent'}
