"""What a task description accepts, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api import constants as c
from rp_api.description import task as keys
from rp_api.description.environment import normal_form
from rp_api.description.pilot import PilotDescription
from rp_api.description.python_task import PythonTask
from rp_api.description.task import TaskDescription
from rp_api.description.typed import Description
from rp_api.description.wrong_names import OF_PILOTS, OF_TASKS
from rp_api.errors import AttributeTypeError, AttributeUnknown, DescriptionError
from rp_api.resources import Slot
from rp_api.staging.directive import expand

DEFAULTS = {
    'uid': '', 'name': '', 'mode': 'task.executable', 'executable': '', 'arguments': [], 'info_pattern': '', 'code': '',
    'function': '', 'method': '', 'args': [], 'kwargs': {}, 'command': '', 'sandbox': '', 'environment': {},
    'named_env': '', 'container': {}, 'pre_launch': [],
    'post_launch': [], 'pre_exec': [], 'post_exec': [], 'pre_exec_sync': False,
    'stdout': '', 'stderr': '', 'input_staging': [], 'output_staging': [], 'stage_on_error': False, 'priority': 0,
    'nice': 0,
    'use_mpi': None, 'ranks': 1, 'ranks_per_node': None, 'cores_per_rank': 1, 'gpus_per_rank': 0.0,
    'threading_type': '', 'gpu_type': '', 'lfs_per_rank': 0, 'mem_per_rank': 0, 'restartable': False, 'tags': {},
    'raptor_id': '', 'raptor_class': '', 'raptor_file': '', 'transport': '', 'metadata': {}, 'service': {},
    'services': [], 'after': [], 'timeout': 0.0, 'startup_timeout': 0.0,
    'forward_signals': [], 'cleanup': False, 'pilot': '', 'slots': [],
    'partition': None,
    'cache': False, 'literal_arguments': False, 'retries': 0, 'retry_on': [], 'retry_delay': 1.0, 'retry_with': {},
    'expect': [], 'cpu_process_type': '', 'gpu_threads': 0, 'gpu_thread_type': '',
}

ALIASES = [
    ('cpu_processes', 'ranks', 4, 4), ('cpu_threads', 'cores_per_rank', '8', 8),
    ('cpu_thread_type', 'threading_type', 'OpenMP', 'OpenMP'), ('gpu_processes', 'gpus_per_rank', 2, 2.0),
    ('gpu_process_type', 'gpu_type', 'CUDA', 'CUDA'), ('lfs_per_process', 'lfs_per_rank', 10, 10),
    ('mem_per_process', 'mem_per_rank', 20, 20), ('scheduler', 'raptor_id', 'master.0', 'master.0'),
    ('worker_class', 'raptor_class', 'MyWorker', 'MyWorker'), ('worker_file', 'raptor_file', '/w.py', '/w.py'),
]

FOR_ANYTHING = ('args', 'kwargs', 'metadata', 'tags', 'slots', 'cpu_process_type', 'gpu_threads', 'gpu_thread_type')
"""Attributes whose values are not cast."""


def a_task(**attributes: Any) -> TaskDescription:
    return TaskDescription({'executable': '/bin/true', **attributes})


def verified(**attributes: Any) -> TaskDescription:
    description = a_task(**attributes)
    description.verify()
    return description


def test_attributes_and_defaults() -> None:
    assert TaskDescription().as_dict() == DEFAULTS
    for name, value in DEFAULTS.items():
        assert type(TaskDescription()[name]) is type(value)


def test_every_attribute_has_a_constant_and_is_documented() -> None:
    constants = {value: name for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
    for name in [*DEFAULTS, *(alias[0] for alias in ALIASES)]:
        assert constants[name] == name.upper()
        assert f'`{name}`' in str(TaskDescription.__doc__)
    assert keys.RANKS == 'ranks'


def test_the_default_of_every_attribute_is_valid() -> None:
    description = TaskDescription(DEFAULTS | {'executable': '/bin/true'})
    description.verify()
    assert description.sparse() == {'executable': '/bin/true', 'use_mpi': False}


def test_keys_that_applications_set() -> None:
    description = TaskDescription()
    description.executable = '/bin/date'
    description.arguments.append('-u')
    description['environment'] = {'TZ': 'UTC', 'N': 1}
    description.metadata.update({'a': [1]})
    description.ranks = '2'
    description.verify()
    assert description.sparse() == {'executable': '/bin/date', 'arguments': ['-u'], 'ranks': 2,
                                    'environment': {'TZ': 'UTC', 'N': '1'}, 'metadata': {'a': [1]}, 'use_mpi': True}


@given(st.fixed_dictionaries({'executable': st.text(min_size=1)}, optional={
    'name': st.text(), 'arguments': st.lists(st.text()), 'ranks': st.integers(1, 2**40),
    'environment': st.dictionaries(st.text(), st.text()), 'gpus_per_rank': st.floats(0, 1) | st.integers(2, 64),
    'timeout': st.floats(0, 1e9), 'metadata': st.dictionaries(st.text(), st.integers(-2**60, 2**60)),
    'use_mpi': st.none() | st.booleans(), 'slots': st.lists(st.just({'cores': [1]})),
}))
def test_what_goes_over_the_wire_comes_back(attributes: dict[str, Any]) -> None:
    description = TaskDescription(attributes)
    description.verify()
    received = TaskDescription.from_sparse(msgpack.unpackb(msgpack.packb(description.sparse())))
    assert received == description
    received.verify()
    assert received == description


# modes

@pytest.mark.parametrize(('mode', 'needed'), [
    (c.TASK_EXECUTABLE, 'executable'), (c.TASK_SERVICE, 'executable'), (c.AGENT_SERVICE, 'executable'),
    (c.TASK_PROC, 'executable'), (c.TASK_FUNCTION, 'function'), (c.TASK_METHOD, 'method'), (c.TASK_EVAL, 'code'),
    (c.TASK_EXEC, 'code'), (c.TASK_SHELL, 'command'),
])
def test_each_mode_needs_its_attribute(mode: str, needed: str) -> None:
    with pytest.raises(DescriptionError, match=f"TaskDescription.{needed} is not set, .* mode '{mode}'"):
        TaskDescription({'mode': mode}).verify()
    TaskDescription({'mode': mode, needed: 'something'}).verify()


def test_modes_of_raptor_workers_are_not_known_here() -> None:
    TaskDescription({'mode': 'mine', 'raptor_id': 'raptor.0000'}).verify()
    with pytest.raises(AttributeTypeError, match=r"one of 'task.executable', .* not 'mine'"):
        TaskDescription({'mode': 'mine'}).verify()


@pytest.mark.parametrize('mode', [c.RAPTOR_MASTER, c.RAPTOR_WORKER])
def test_raptor_tasks_need_nothing(mode: str) -> None:
    description = TaskDescription({'mode': mode})
    description.verify()
    assert description.sparse() == {'mode': mode, 'use_mpi': False}


def test_an_empty_description_lacks_an_executable() -> None:
    with pytest.raises(ValueError, match='executable is not set'):
        TaskDescription().verify()


def test_unknown_modes_are_refused_with_the_known_ones() -> None:
    with pytest.raises(DescriptionError, match=r"TaskDescription\.mode must be one of 'task.executable'.*'agent"):
        verified(mode='task.executabel')


def test_a_method_may_be_named_as_function() -> None:
    description = TaskDescription({'mode': c.TASK_METHOD, 'function': 'hello'})
    description.verify()
    assert description.method == 'hello'


@pytest.mark.parametrize('mode', [c.TASK_FUNCTION, c.TASK_METHOD])
def test_calls_have_no_environment_of_their_own(mode: str) -> None:
    with pytest.raises(DescriptionError, match=r"named_env is 'conda'.*leave it unset"):
        TaskDescription({'mode': mode, 'function': 'f', 'named_env': 'conda'}).verify()


@pytest.mark.parametrize('more', [{'args': [1]}, {'kwargs': {'a': 1}}])
def test_a_python_task_has_its_arguments_already(more: dict[str, Any]) -> None:
    function = PythonTask(print, (1,))
    TaskDescription({'mode': c.TASK_FUNCTION, 'function': function}).verify()
    TaskDescription({'mode': c.TASK_FUNCTION, 'function': 'name', **more}).verify()
    with pytest.raises(DescriptionError, match='includes its arguments'):
        TaskDescription({'mode': c.TASK_FUNCTION, 'function': function, **more}).verify()


def test_programs_have_arguments_and_no_args() -> None:
    with pytest.raises(DescriptionError, match=r'args is .* but it is for functions: .* have "arguments"'):
        verified(args=['-u'])
    for more in ({'arguments': ['-l']}, {'raptor_id': 'raptor.0000'}):
        verified(args=['-u'], **more)


@pytest.mark.parametrize('function', [print, lambda *args, **kwargs: (args, kwargs), TaskDescription])
def test_a_function_itself_is_a_python_task_as_plain_data(function: Any) -> None:
    description = TaskDescription({'mode': c.TASK_FUNCTION, 'function': function, 'args': (1,), 'kwargs': {'a': 2}})
    description.verify()
    assert description.function is function
    plain = description.as_dict()
    assert (plain['args'], plain['kwargs']) == ([], {})
    assert PythonTask.get_func_attr(plain['function'])[1:] == ([1], {'a': 2})


def test_a_method_of_workers_has_a_name() -> None:
    with pytest.raises(AttributeTypeError, match=r'\.method must be the name of a method of the worker, not'):
        TaskDescription({'mode': c.TASK_METHOD, 'function': print}).verify()


# values

@pytest.mark.parametrize('uid', ['client', 'resource', 'pilot', 'a/b', '..', '.', 'a b', 'a\n', 'a\tb', '\u00a0'])
def test_a_uid_is_one_free_word(uid: str) -> None:
    with pytest.raises(DescriptionError, match=r'TaskDescription.uid is .* but must be'):
        verified(uid=uid)


@pytest.mark.parametrize('uid', ['', 'task.000000', 'pilot.0000', 'é', 'a.b-c_d:1'])
def test_other_uids_are_taken(uid: str) -> None:
    assert verified(uid=uid).uid == uid


@pytest.mark.parametrize('name', ['sandbox', 'stdout', 'stderr'])
def test_paths_that_no_file_can_have(name: str) -> None:
    with pytest.raises(DescriptionError, match=f'TaskDescription.{name} is .* without NUL'):
        TaskDescription({'executable': 'x', name: 'a\0b'}).verify()


@pytest.mark.parametrize(('name', 'value', 'allowed'), [
    ('ranks', 0, '1 or more'), ('ranks', -1, '1 or more'), ('cores_per_rank', 0, '1 or more'),
    ('ranks_per_node', 0, '1 or more'), ('gpus_per_rank', -0.5, 'a share of a GPU'),
    ('gpus_per_rank', 1.5, 'whole number'), ('nice', -1, '0 to 19'), ('nice', 20, '0 to 19'),
    ('timeout', -1, '0 or more'), ('startup_timeout', -0.1, '0 or more'), ('partition', -1, '0 or more'),
])
def test_values_out_of_range_are_refused(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(DescriptionError, match=f'TaskDescription.{name} is {value}.*, but must be .*{allowed}'):
        verified(**{name: value})


@pytest.mark.parametrize(('name', 'value'), [
    ('gpus_per_rank', 0.25), ('gpus_per_rank', 1), ('gpus_per_rank', 3), ('priority', -5), ('ranks_per_node', None),
    ('partition', 0), ('use_mpi', False), ('timeout', 0),
])
def test_values_in_range_are_taken(name: str, value: Any) -> None:
    assert verified(**{name: value})[name] == value


@pytest.mark.filterwarnings('ignore:.* is deprecated, use :DeprecationWarning')
@pytest.mark.parametrize(('values', 'use_mpi'), [
    ({}, False), ({'ranks': 2}, True), ({'cpu_processes': 2}, True), ({'ranks': 2, 'use_mpi': None}, True),
    ({'ranks': 2, 'use_mpi': False}, False), ({'use_mpi': True}, True)])
def test_more_than_one_rank_uses_mpi(values: dict[str, Any], use_mpi: bool) -> None:
    """What is only checked, to be sent, does not say so."""
    assert verified(**values).use_mpi is use_mpi
    checked = a_task(**values)
    checked.check()
    assert checked.use_mpi is values.get('use_mpi')


@pytest.mark.filterwarnings('ignore:.* is deprecated, use :DeprecationWarning')
@pytest.mark.parametrize(('name', 'given_value', 'kept'), [
    ('threading_type', 'openmp', 'OpenMP'), ('threading_type', c.POSIX, 'POSIX'), ('threading_type', c.MPI, ''),
    ('threading_type', '', ''), ('gpu_type', 'rocm', 'ROCm'),
    ('gpu_type', 'intel', 'Intel'), ('gpu_type', c.CUDA, 'CUDA'),
    ('gpu_type', c.GPU_OpenMP, ''), ('gpu_type', c.POSIX, ''), ('gpu_process_type', 'MPI', ''),
])
def test_types_of_threads_and_gpus(name: str, given_value: str, kept: str) -> None:
    assert verified(**{name: given_value})[name] == kept


@pytest.mark.parametrize('name', ['threading_type', 'gpu_type'])
def test_unknown_types_are_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(DescriptionError, match=f"TaskDescription.{name} must be one of '', '.*, not 'quantum'"):
        verified(**{name: 'quantum'})


def test_the_transport_of_a_worker() -> None:
    assert verified(mode=c.RAPTOR_WORKER, transport='MPI').transport == 'mpi'
    assert verified(mode=c.RAPTOR_WORKER, transport='zmq', container='image.sif').transport == 'zmq'
    for attributes, sentence in (
            ({'mode': c.RAPTOR_WORKER, 'transport': 'tcp'},
             "TaskDescription.transport must be one of '', 'mpi', 'zmq', not 'tcp'"),
            ({'transport': 'mpi'}, "transport is 'mpi', but the mode is 'task.executable': it is for tasks of mode "
                                   "'raptor.worker'"),
            ({'mode': c.RAPTOR_WORKER, 'transport': 'mpi', 'container': 'image.sif'}, 'cannot run in a container')):
        with pytest.raises(DescriptionError, match=sentence):
            verified(**attributes)


@pytest.mark.parametrize('name', ['pre_exec', 'post_exec'])
def test_commands_for_some_ranks(name: str) -> None:
    assert verified(**{name: ['a', {0: 'b', '1': ['c', 'd']}]})[name] == ['a', {'0': 'b', '1': ['c', 'd']}]
    assert verified(**{name: {'0': 'b'}})[name] == [{'0': 'b'}]
    assert verified(**{name: 'a'})[name] == ['a']
    commands = ['a', {'0': 'b'}]
    assert verified(**{name: commands})[name] is commands
    for wrong in ([{'x': 'b'}], [{-1: 'b'}], [3], [None], [{0: None}], [['a']]):
        with pytest.raises(AttributeTypeError, match=f'TaskDescription.{name} must be a list where each item is'):
            verified(**{name: wrong})


@pytest.mark.parametrize('name', ['input_staging', 'output_staging'])
def test_staging_directives_stay_as_they_are(name: str) -> None:
    directives = ['a > b', {'source': 'c', 'action': c.COPY}]
    assert verified(**{name: directives})[name] is directives
    assert verified(**{name: 'a'})[name] == ['a']
    assert verified(**{name: {'source': 'a'}})[name] == [{'source': 'a'}]
    with pytest.raises(AttributeTypeError, match='each item is a string or a dict'):
        verified(**{name: [3]})


class Own:
    """A path of a class that is not of pathlib."""

    def __fspath__(self) -> str:
        return '/a/b'


def outcome(kind: type[Description], name: str, value: Any) -> Any:
    """What a description with that value is once it was verified, or why it is refused."""
    needed = {'executable': 'x'} if kind is TaskDescription else {'resource': 'local.exact', 'nodes': 1}
    description = kind(needed | {name: value})
    try:
        description.check()
    except DescriptionError as error:
        text = re.sub(r'PosixPath\((.*?)\)|<[^<]*? object at .*?>', r"\1", str(error))
        return type(error), text.replace("'/a/b'", '')
    assert type(description[name]) is not type(value) or isinstance(value, str | list | dict)
    return description


@pytest.mark.parametrize(('kind', 'name'), [
    *((TaskDescription, name) for name in DEFAULTS if name not in FOR_ANYTHING),
    *((PilotDescription, name) for name in PilotDescription._schema if name not in ('prepare_env', '_config'))])
@pytest.mark.parametrize('put', [lambda path: path, lambda path: [path], lambda path: {'key': path},
                                 lambda path: {'image': path, 'binds': [path]}, lambda path: {'0': [path]}])
def test_a_path_counts_as_its_text(kind: type[Description], name: str, put: Callable[[Any], Any]) -> None:
    if name.endswith('_staging') and isinstance(put(''), dict):
        pytest.skip('see test_paths_in_staging_directives')
    for path in (Path('/a/b'), Own()):
        assert outcome(kind, name, put(path)) == outcome(kind, name, put('/a/b'))


def test_paths_in_staging_directives() -> None:
    for directive in ({'source': Path('/a/b')}, {'source': '/a/b', 'target': Path('c')}, Path('/a/b')):
        text = {name: str(path) for name, path in directive.items()} if isinstance(directive, dict) else str(directive)
        found, expected = (expand(verified(input_staging=[each]).input_staging)[0] for each in (directive, text))
        assert {**found, 'uid': ''} == {**expected, 'uid': ''}


@pytest.mark.parametrize(('path', 'text'), [
    ('sim', './sim'), ('./sim', './sim'), ('../sim', '../sim'), ('a/sim', './a/sim'), ('/a/sim', '/a/sim'),
    ('$HOME/sim', '$HOME/sim')])
def test_a_path_is_no_name_of_a_program_or_an_image(path: str, text: str) -> None:
    assert verified(executable=Path(path)).executable == text
    for container in (Path(path), {'image': Path(path)}):
        assert verified(container=container).container == {'image': text}
    assert normal_form('own', {'setup': [Path(path), 'numpy']})['setup'] == [text, 'numpy']


def test_paths_of_environments() -> None:
    spec = {'path': Path('/a'), 'setup': Path('/a/b.whl')}
    assert normal_form('own', spec) == normal_form('own', {name: str(path) for name, path in spec.items()})
    assert normal_form('own', {'keep': Path('/a')}) == normal_form('own', {'keep': '/a'})


def test_path_of_a_probe() -> None:
    service = {'probe': {'file': Path('/a')}}
    assert verified(mode=c.TASK_SERVICE, service=service).service == {'probe': {'file': '/a'}}


def test_slots_are_plain_on_the_wire() -> None:
    slots = [Slot(cores=[0, 1], node_index=2)]
    description = verified(slots=slots)
    assert description.slots is slots
    sent = description.sparse()['slots']
    assert type(sent[0]) is dict
    assert sent[0]['cores'][1] == {'index': 1, 'occupation': 1.0}
    with pytest.raises(AttributeTypeError, match=r'TaskDescription\.slots'):
        verified(slots=[3])


# names

@pytest.mark.parametrize(('old', 'new', 'value', 'cast'), ALIASES)
def test_old_names_are_understood_and_stay_readable(old: str, new: str, value: Any, cast: Any) -> None:
    with pytest.warns(DeprecationWarning, match=f'^TaskDescription.{old} is deprecated, use {new}$'):
        description = verified(**{old: value})
    for read in (description, TaskDescription.from_sparse(description.sparse())):
        assert read[new] == read[old] == getattr(read, old) == read.get(old) == cast
        assert old in read
    assert type(description[new]) is type(cast)
    assert old not in description.sparse()


@pytest.mark.parametrize('name', ['cpu_process_type', 'gpu_threads', 'gpu_thread_type'])
def test_names_without_effect_are_kept(name: str) -> None:
    assert verified(**{name: 'MPI'}).sparse() == {'executable': '/bin/true', name: 'MPI', 'use_mpi': False}


@pytest.mark.parametrize(('name', 'instead'), [
    ('cores', 'use .*"cores_per_rank"'), ('mpi', 'use .*"use_mpi"'), ('env', 'use "environment"'),
    ('cwd', 'use "sandbox"'), ('cmd', 'use "executable"'),
    ('cpus', 'use "ranks" .*"cores_per_rank"'), ('cpus-per-task', 'use "ranks"'),
    ('walltime', 'use "timeout"'), ('nodes', 'use "ranks"'), ('queue', 'set PilotDescription.queue'),
    ('input', 'tasks have no standard input'), ('Env', 'use "environment"')])
def test_names_of_other_systems_are_refused_with_ours(name: str, instead: str) -> None:
    with pytest.raises(AttributeUnknown, match=f'has no attribute "{name}": {instead}'):
        verified(**{name: 2})


@pytest.mark.parametrize(('kind', 'names'), [(TaskDescription, OF_TASKS), (PilotDescription, OF_PILOTS)])
def test_names_of_other_systems_lead_to_ours(kind: type[Description], names: Mapping[str, str]) -> None:
    assert not names.keys() & kind._casts.keys()
    assert all(name == name.lower() for name in names)
    for sentence in set(names.values()):
        instead = re.match(r'(?:use|set) (?:"(\w+)"|(\w+)\.(\w+))', sentence)
        if instead is None:
            continue
        owners: dict[str, type[Description]] = {each.__name__: each for each in (TaskDescription, PilotDescription)}
        owner = owners[instead[2] or kind.__name__]
        assert (instead[1] or instead[3]) in owner._schema, sentence


def test_suggestions_do_not_guess() -> None:
    with pytest.raises(AttributeUnknown) as caught:
        verified(persistence=2)
    assert 'did you mean' not in str(caught.value)
    with pytest.raises(AttributeUnknown, match="did you mean 'executable'"):
        verified(executabel='x')


@pytest.mark.parametrize('name', ['exception', 'shell'])
def test_other_names_are_set_freely_and_refused_later(name: str) -> None:
    description = a_task()
    description[name] = None
    with pytest.raises(KeyError, match=f'TaskDescription has no attribute "{name}"'):
        description.verify()


class Named:
    """Takes the place of a task or pilot of the application."""

    uid = 'thing.0000'

    def __str__(self) -> str:
        return "['thing.0000', 'NEW']"


def test_tasks_and_pilots_stand_for_their_uids() -> None:
    description = TaskDescription({'executable': 'x', 'pilot': Named(), 'raptor_id': Named(),
                                   'services': [Named(), 'other']})
    description.verify()
    assert (description.pilot, description.raptor_id) == ('thing.0000', 'thing.0000')
    assert description.services == ['thing.0000', 'other']
