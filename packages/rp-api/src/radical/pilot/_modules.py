"""The modules below `radical.pilot`: one table of their names, and the finder that makes a module when it is imported.

The modules have the import paths of RADICAL-Pilot 1 and no code of their own: each name is imported from where it is
defined on first use, and then kept as an attribute that `mock.patch` can replace. Importing a module, or a name with
`from ... import`, whose distribution is not installed raises a `ModuleNotFoundError` that names the `pip install`
command. For type checkers, `.pyi` files declare the same names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_PREFIX = 'radical.pilot.'

_RESOURCES = """
    ResourceOccupation RO Slot RankRequirements Node NumaNode NodeList NumaNodeList NumaDomainMap NumaDomain"""
_SERIALIZER = 'serialize_obj serialize_file serialize_bson deserialize_obj deserialize_file deserialize_bson'
_PLATFORMS = 'get_resource_configs get_resource_config get_resource_fs_url get_resource_job_url'
_MISC = {
    'rp_api.platforms.load': _PLATFORMS,
    'rp_api.version_1': 'convert_slots_to_new convert_slots_to_old create_tar get_rusage tail',
}
_SESSION = {'rp_client.recorded': 'fetch_profiles fetch_logfiles fetch_filetype'}
_PROF_UTILS = {
    'rp_api.analytics.durations': """
        PILOT_DURATIONS PILOT_DURATIONS_DEBUG PILOT_DURATIONS_DEBUG_RU PILOT_DURATIONS_DEBUG_SHORT
        TASK_DURATIONS_DEFAULT TASK_DURATIONS_APP
        TASK_DURATIONS_DEBUG TASK_DURATIONS_DEBUG_RU TASK_DURATIONS_DEBUG_SHORT""",
    'rp_api.analytics.session': """
        get_session_profile get_session_description get_session_json fetch_json get_hostmap get_hostmap_deprecated""",
    'rp_api.analytics.completion': 'fix_profiles',
    'rp_api.analytics.resources': """
        get_provided_resources get_consumed_resources get_duration get_node_index cluster_resources
        get_resource_transitions get_resource_timelines""",
}
_SERIALIZERS = {'rp_api.functions': _SERIALIZER, 'rp_api.errors': 'SerializationError DeserializationError'}

# each module, relative to radical.pilot: where its names are defined; `new=old` renames, `*` stands for all names
_TABLE: dict[str, dict[str, str]] = {
    'constants': {'rp_api.constants': '*'},
    'states': {'rp_api.states': '*'},
    'pilot_description': {'rp_api.description.pilot': '*'},
    'task_description': {'rp_api.description.task': '*', 'rp_api.constants': """
        TASK_EXECUTABLE TASK_SERVICE TASK_FUNC TASK_FUNCTION TASK_METH TASK_METHOD TASK_EVAL TASK_EXEC TASK_PROC
        TASK_SHELL RAPTOR_MASTER RAPTOR_WORKER AGENT_SERVICE"""},
    'staging_directives': {'rp_api.staging.directive': 'Directive describe expand expand_staging_directives=expand'},
    'pytask': {'rp_api.description.python_task': 'PythonTask'},
    'resource_config': {
        'rp_api.platforms.definition': 'ResourceConfig AccessSchema RaptorConfig',
        'rp_api.resources': _RESOURCES,
    },
    'session': {'rp_client.handles.session': 'Session'},
    'pilot_manager': {'rp_client.handles.pilot_manager': 'PilotManager'},
    'pilot': {'rp_client.handles.pilot': 'Pilot'},
    'task_manager': {'rp_client.handles.task_manager': 'TaskManager'},
    'task': {'rp_client.handles.task': 'Task'},
    'aio': {
        'rp_client.completion.waits': 'wait=async_wait as_completed',
        'rp_client.executor.async_executor': 'Executor=AsyncExecutor',
    },
    'raptor_tasks': {'rp_client.handles.raptor': 'Raptor=RaptorMaster RaptorMaster RaptorWorker'},
    'raptor': {
        'rp_raptor.master.master': 'Master',
        'rp_raptor.rank.worker': 'Worker DefaultWorker MPIWorker MPIWorkerRank',
        'rp_raptor.client.stream': 'stream',
        'rp_raptor.client.futures': 'Executor',
        'rp_raptor.errors': 'CallLost RemoteError',
        'rp_raptor.definitions': 'worker_method',
        'rp_raptor.objects.reference': 'ObjectRef',
    },
    'raptor.master': {'rp_raptor.master.master': 'Master'},
    'raptor.worker': {'rp_raptor.rank.worker': 'Worker'},
    'raptor.worker_default': {'rp_raptor.rank.worker': 'DefaultWorker'},
    'raptor.worker_mpi': {'rp_raptor.rank.worker': 'MPIWorker MPIWorkerRank'},
    'utils': {**_MISC, **_PROF_UTILS, **_SERIALIZERS, **_SESSION},
    'utils.misc': _MISC,
    'utils.prof_utils': _PROF_UTILS,
    'utils.serializer': _SERIALIZERS,
    'utils.session': _SESSION,
}


def children(name: str) -> set[str]:
    """Return the names of the modules directly below the module `name`, which is relative to `radical.pilot`."""
    return {other.rpartition('.')[2] for other in _TABLE if other.rpartition('.')[0] == name}


def not_installed(name: str) -> str | None:
    """Return the sentence that explains how to install what the module `name` holds, or None if it is installed."""
    sentences = [_missing(_distribution(source)) for source in _TABLE[name]]
    return sentences[0] if all(sentences) else None


def install_finder() -> None:
    """Register the modules of the table; ahead of the directories, which have `.pyi` files for some of them."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    """Finds the modules of the table, and says of other names below `radical.pilot` what they need."""

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None,
                  ) -> ModuleSpec | None:
        """Return how to make a module of the table; None for all others."""
        if not fullname.startswith(_PREFIX):
            return None
        name = fullname[len(_PREFIX):]
        if name in _TABLE:
            # not an importlib.abc.Loader, because importing that takes longer than all of this module
            return ModuleSpec(fullname, _Loader, is_package=bool(children(name)))  # type: ignore[arg-type]
        # `from radical.pilot import Session` gets here if `radical.pilot` has no such attribute
        parent, _, child = fullname.rpartition('.')
        table = vars(sys.modules[parent]).get('_TABLE', {})
        sentence = _missing(table[child][0]) if child in table else None
        if sentence:
            raise ModuleNotFoundError(f'{fullname}: {sentence}', name=table[child][0])
        return None


class _Module(ModuleType):
    """A module of the table, whose names are imported on first use."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        key = name[len(_PREFIX):]
        self._modules = children(key)
        self._TABLE = {new: entry for source, listed in _TABLE[key].items() for new, entry in _entries(source, listed)}
        for source, listed in _TABLE[key].items():
            if listed == '*':
                self.__dict__.update(_public(import_module(source)))
        self.__doc__ = f'The names of {", ".join(_TABLE[key])}.'

    def __getattr__(self, name: str) -> object:
        """Import and return the object called `name`; raise AttributeError if it is unknown or not installed."""
        if name == '__all__':
            return dir(self)
        if name in self._modules:
            return import_module(f'{self.__name__}.{name}')
        if name not in self._TABLE:
            raise AttributeError(f'module {self.__name__!r} has no attribute {name!r}')
        distribution, source, original = self._TABLE[name]
        sentence = _missing(distribution)
        if sentence:
            raise AttributeError(f'{self.__name__}.{name}: {sentence}')
        value = getattr(import_module(source), original)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        """Return the public names whose distribution is installed."""
        lazy = {name for name, entry in self._TABLE.items() if not _missing(entry[0])}
        return sorted(lazy | self._modules | set(_public(self)))


class _Loader:
    """Makes the modules of the table."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        """Return the new module; raise ModuleNotFoundError if its distribution is not installed."""
        name = spec.name[len(_PREFIX):]
        sentence = not_installed(name)
        if sentence:
            raise ModuleNotFoundError(f'{spec.name}: {sentence}', name=_distribution(next(iter(_TABLE[name]))))
        return _Module(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Do nothing: the module is complete."""


def _entries(source: str, listed: str) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yield each name with its distribution, its module and its name there."""
    for name in listed.split() if listed != '*' else ():
        new, _, old = name.partition('=')
        yield new, (_distribution(source), source, old or new)


def _public(module: ModuleType) -> dict[str, object]:
    return {name: value for name, value in vars(module).items() if not name.startswith('_')}


def _distribution(module: str) -> str:
    return module.partition('.')[0].replace('_', '-')


def _missing(distribution: str) -> str | None:
    from rp_api.distributions import missing  # rarely needed

    return missing(distribution)
