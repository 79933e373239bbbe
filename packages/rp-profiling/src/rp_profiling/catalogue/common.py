"""Events that any component records, and those that any profile begins and ends with."""

from __future__ import annotations

from functools import partial

from rp_profiling.catalogue.model import (
    ALL_COMPONENTS,
    ALL_PROFILES,
    CLONES,
    IN_USE,
    OWN,
    PartialOrder,
    Recorder,
    Star,
    opt,
    seq,
)
from rp_profiling.levels import DEFAULT, FULL

_COMPONENTS = tuple(f'{name}.*.prof' for name in (
    'agent_executing', 'agent_raptor', 'agent_scheduling', 'agent_staging_input', 'agent_staging_output',
    'pmgr_launching', 'tmgr_scheduling', 'tmgr_staging_input', 'tmgr_staging_output'))
_ADVANCING = (*_COMPONENTS, 'pmgr.*.prof', 'tmgr.*.prof')
_PASSING_ON = tuple(name for name in _COMPONENTS if not name.startswith(('agent_raptor', 'tmgr_staging_output')))
_STATE = 'state of the entity'

_any = Recorder(ALL_COMPONENTS, uid='entity')
_part = partial(_any, profiles=('agent_0.prof',), optional=True, origin=IN_USE)
_profile = Recorder(ALL_PROFILES, profiles=('*.prof',))

EVENTS = (
    _any('get', 'an entity reaches the component', state=_STATE, profiles=_COMPONENTS, detail=FULL),
    _any('advance', 'the component moves an entity to its next state', state=_STATE, profiles=_ADVANCING),
    _any('publish', 'the state of an entity is published', state=_STATE, profiles=_COMPONENTS, detail=FULL),
    _any('put', 'an entity leaves the component', state=_STATE, msg='channel that it leaves through',
         profiles=_PASSING_ON, detail=FULL),
    _any('lost', 'an entity is dropped because its state does not belong to this component', state=_STATE,
         unrecorded='a component gets only entities in the states that it takes'),
    _any('drop', 'an entity was ended meanwhile and goes no further', state=_STATE,
         profiles=('pmgr_launching.*.prof', 'tmgr_scheduling.*.prof', 'tmgr_staging_input.*.prof'), optional=True,
         detail=DEFAULT),
    _any('component_init', 'the component has started and prepares for work', uid='', profiles=_COMPONENTS),
    _any('component_final', 'the component ends its work', uid='', profiles=_COMPONENTS),
    _any('add clone', 'a copy of a task is added, to put load on one component', uid='task clone', condition='CFG',
         origin=CLONES),
    _any('drop clone', 'a copy of a task is removed behind the component under load', uid='task clone',
         condition='CFG', origin=CLONES),
    _part('bridge_start', 'a bridge between components starts', uid='bridge'),
    _part('bridge_stop', 'a bridge between components ends', uid='bridge'),
    _part('comp_start', 'the process of a component starts', uid='component'),
    _part('comp_stop', 'the process of a component ends', uid='component'),
    _profile('sync_rel', 'a moment that two profiles record with the same message; relates their clocks', uid='entity',
             msg='the moment, in the form of sync_abs', condition='INTERNAL', origin=IN_USE),
    _profile('sync_abs', 'relates the clock of this host to the reference of the session, or to absolute time',
             msg='host:ip:system time:absolute time:mode, mode being ntp (compared) or sys (not compared)',
             condition='INTERNAL'),
    _profile('trace_detail', 'the profile has only the events of this detail', msg='states', condition='CFG',
             origin=OWN),
    _profile('END', 'the profile is closed; its last row'),
)

ORDERS = (
    PartialOrder(ALL_COMPONENTS, 'component', seq('component_init', Star('*'), 'component_final')),
    PartialOrder(
        ALL_COMPONENTS,
        'entity',
        seq(opt('get'), Star(seq('advance', opt('publish'))), opt('put')),
        note='A component may leave out get, publish and put, and may move an entity through several states.',
    ),
    PartialOrder(
        ALL_PROFILES,
        'profile',
        seq('sync_abs', Star('*'), 'END'),
        note='A profile that was extended holds this sequence once for each writer.',
    ),
)
