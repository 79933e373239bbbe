"""Platform definitions: shipped ones, users' files, access schemas, and what is said about broken ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rp_api.errors import AttributeTypeError, AttributeUnknown, DescriptionError, PlatformError
from rp_api.platforms import (
    AccessSchema,
    RaptorConfig,
    ResourceConfig,
    fill,
    filled,
    get_platform,
    get_resource_config,
    get_resource_configs,
    get_resource_fs_url,
    get_resource_job_url,
    list_platforms,
    load,
    load_config,
)
from rp_api.platforms.load import merge, read_json
from rp_api.platforms.review import review

MINIMAL = {'resource_manager': 'FORK', 'launch_methods': {'order': ['FORK']}}


@pytest.fixture(autouse=True)
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the user's configuration files."""
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(tmp_path))
    directory = tmp_path / '.radical' / 'pilot' / 'configs'
    directory.mkdir(parents=True)
    return directory


def write(configs: Path, site: str, content: object) -> Path:
    path = configs / f'resource_{site}.json'
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


DATA = Path(load.__file__).parent / 'data'
SHIPPED = {f'{path.stem.removeprefix("resource_")}.{name}': values
           for path in DATA.iterdir() for name, values in read_json(str(path)).items()}
LABELS = sorted(SHIPPED)
IN_USE = [label for label in LABELS if not SHIPPED[label].get('retired')]
HERE = ['debug.flux', 'debug.noop', 'debug.radical', 'debug.summit', 'debug.test', 'local.allocation', 'local.dragon',
        'local.exact', 'local.localhost', 'local.localhost_anaconda', 'local.localhost_test']


class TestShipped:
    def test_sites(self) -> None:
        assert list_platforms(retired=True) == LABELS
        assert {label.partition('.')[0] for label in LABELS} == {
            'access', 'anl', 'bsc', 'cineca', 'csc', 'cscs', 'debug', 'epcc', 'eurohpc', 'iu', 'llnl', 'local', 'lrz',
            'lsu', 'ncar', 'nccs', 'ncsa', 'nersc', 'nioz', 'ornl', 'princeton', 'purdue', 'rutgers', 'tacc',
            'tianjin', 'uva'}
        assert set(HERE) <= set(LABELS)

    def test_retired_ones_are_listed_if_asked_for(self) -> None:
        assert list_platforms() == IN_USE
        retired = set(LABELS).difference(IN_USE)
        assert {'ornl.titan', 'ornl.rhea', 'ornl.summit', 'anl.theta', 'ncsa.bluewaters', 'lsu.supermic',
                'lrz.supermuc', 'ncar.cheyenne', 'access.comet', 'access.stampede2_srun'} <= retired
        assert get_platform('ornl.titan').retired is True
        with pytest.raises(PlatformError, match=r"did you mean 'ornl\.titan'"):
            get_platform('ornl.titen')

    def test_directories_of_projects_need_a_project(self) -> None:
        """Except of retired platforms, which are only simulated."""
        for label in IN_USE:
            config = get_platform(label)
            if '%(pd.project)s' in config.default_remote_workdir:
                assert config.mandatory_args == ['project'], label

    def test_aurora(self) -> None:
        """A GPU is a tile, and the first core of each socket is the system's."""
        config = get_platform('anl.aurora')
        assert (config.gpus_per_node, config.system_architecture['blocked_cores']) == (12, [0, 52])
        assert config.task_environment == {'ZE_FLAT_DEVICE_HIERARCHY': 'FLAT'}

    @pytest.mark.parametrize('label', LABELS)
    def test_all_are_complete(self, label: str) -> None:
        config = get_platform(label)
        config.verify()
        assert config.label == label
        assert config.description
        assert json.loads(json.dumps(config)) == config.as_dict()
        assert review(config) == []

    @pytest.mark.parametrize('label', sorted(set(LABELS).difference(HERE)))
    def test_machines_say_where_their_numbers_are_from(self, label: str) -> None:
        config = get_platform(label)
        assert re.match(r'Numbers of a node: (not verified, |(.*, )?https?://\S+, \d{4}-\d\d-\d\d\.)', config.notes)
        assert list(config.schemas)[:3] == ['local', 'batch', 'interactive']
        assert config.schemas['interactive'].job_manager_endpoint == 'fork://localhost/'

    def test_frontier(self) -> None:
        config = get_platform('ornl.frontier', 'ssh')
        assert (config.cores_per_node, config.gpus_per_node, config.resource_manager) == (64, 8, 'SLURM')
        assert config.system_architecture['smt'] == 2
        assert len(config.system_architecture['blocked_cores']) == 16
        assert config.launch_methods['order'] == ['SRUN']
        assert config.job_manager_endpoint == 'slurm+ssh://frontier.olcf.ornl.gov/'

    @pytest.mark.parametrize(('label', 'node'), [
        ('local.localhost', (8, 1, 4096)), ('local.localhost_anaconda', (8, 1, 4096)), ('local.exact', (0, 0, 0))])
    def test_local_platforms(self, label: str, node: tuple[int, int, int]) -> None:
        config = get_platform(label)
        assert (config.cores_per_node, config.gpus_per_node, config.mem_per_node) == node
        assert config.resource_manager == 'FORK'
        assert config.launch_methods['order'] == ['FORK', 'MPIEXEC', 'MPIRUN']
        assert config.fake_resources is True
        assert config['job_manager_endpoint'] == 'fork://localhost/'
        assert config['filesystem_endpoint'] == 'file://localhost/'
        assert config.agent_scheduler == 'CONTINUOUS'
        assert config.agent_spawner == 'POPEN'

    def test_localhost_test(self) -> None:
        config = get_platform('local.localhost_test')
        assert config.cores_per_node == 2
        assert config.fake_resources is False

    def test_helpers_of_applications(self) -> None:
        assert get_resource_configs()['local']['localhost'].resource_manager == 'FORK'
        assert get_resource_config('local.localhost') == get_platform('local.localhost')
        assert get_resource_config('local.nowhere') is None
        assert get_resource_config('nowhere') is None
        assert get_resource_fs_url('local.localhost') == 'file://localhost/'
        assert get_resource_job_url('local.localhost', 'local') == 'fork://localhost/'

    def test_definitions_are_not_shared(self) -> None:
        get_platform('local.localhost').schemas.clear()
        assert get_platform('local.localhost').schemas


class TestReview:
    def questions(self, **values: Any) -> list[str]:
        config = ResourceConfig({**MINIMAL, 'job_manager_endpoint': 'fork://localhost/', **values})
        config.verify()
        return review(config)

    def test_nothing_is_questionable(self) -> None:
        assert self.questions() == []

    @pytest.mark.parametrize(('values', 'question'), [
        ({'resource_manager': 'SLRUM'}, "resource_manager has 'SLRUM', which is not known: did you mean 'SLURM'"),
        ({'launch_methods': {'order': ['SRNU']}}, "launch_methods.order has 'SRNU'"),
        ({'launch_methods': {'order': ['SRUN'], 'SSH': {}}}, 'launch_methods.SSH has options, but is not in'),
        ({'system_architecture': {'blocked': [0]}}, "system_architecture has 'blocked', which is not known"),
        ({'schemas': {'x': {'job_manager_endpoint': 'slrum://h/'}}}, "schemas.x.job_manager_endpoint has 'slrum'"),
        ({'schemas': {'x': {'filesystem_endpoint': 'h'}}}, "schemas.x.filesystem_endpoint is 'h', which is not a URL"),
        ({'job_manager_endpoint': ''}, 'there are no schemas'),
        ({'mem_per_node': 512}, 'mem_per_node is 512 MB: is that in another unit?'),
        ({'mem_per_node': 549755813888}, 'mem_per_node is 549755813888 MB: is that in another unit?'),
        ({'lfs_size_per_node': 2 * 10**12, 'lfs_path_per_node': '/l'}, 'lfs_size_per_node is 2000000000000 MB'),
        ({'lfs_size_per_node': 5}, 'lfs_size_per_node is given, but not lfs_path_per_node'),
        ({'cores_per_node': 4, 'system_architecture': {'smt': 2, 'blocked_cores': [0, 8]}},
         'system_architecture.blocked_cores has 8, but a node has 8 cores, from 0'),
        ({'gpus_per_node': 2, 'system_architecture': {'blocked_gpus': [2]}}, 'blocked_gpus has 2, but a node has 2'),
        ({'cores_per_node': 2, 'numa_domain_map': {'0': {'cores': [0, 2]}}}, 'numa_domain_map has cores 2, but'),
        ({'numa_domain_map': {'0': {'gpus': [1]}, '1': {'gpus': [1]}}}, 'numa_domain_map has gpus 1 twice'),
        ({'mandatory_args': ['projekt']}, "mandatory_args has 'projekt', which is not known: did you mean 'project'"),
        ({'default_remote_workdir': '/%(pd.Projct)s'}, "a placeholder %(pd...)s has 'projct'")])
    def test_what_is_questionable(self, values: dict[str, Any], question: str) -> None:
        found = self.questions(**values)
        assert [question in sentence for sentence in found] == [True]


class TestUnknown:
    @pytest.mark.parametrize(('label', 'nearest'), [('local.localhots', 'local.localhost'),
                                                    ('localhost', 'local.localhost')])
    def test_label_names_the_nearest(self, label: str, nearest: str) -> None:
        with pytest.raises(PlatformError, match=f'{label!r} is not known.*did you mean .*{nearest!r}'):
            get_platform(label)

    def test_label_like_none(self) -> None:
        with pytest.raises(PlatformError, match=r"'xyz\.0' is not known"):
            get_platform('xyz.0')

    def test_schema_names_the_allowed(self) -> None:
        with pytest.raises(PlatformError, match=r"localhost' has no access schema 'ssh', only: local"):
            get_platform('local.localhost', 'ssh')


class TestUserFiles:
    def test_values_win_key_by_key(self, configs: Path) -> None:
        write(configs, 'local', {'localhost': {'cores_per_node': 16, 'system_architecture': {'smt': 2}}})
        config = get_platform('local.localhost')
        assert config.cores_per_node == 16
        assert config.system_architecture == {'oversubscribe': True, 'smt': 2}
        assert config.resource_manager == 'FORK'

    def test_new_sites_and_labels(self, configs: Path) -> None:
        write(configs, 'local', {'mine': MINIMAL})
        write(configs, 'my_lab', {'big.one': MINIMAL})
        assert list_platforms() == sorted([*IN_USE, 'local.mine', 'my_lab.big.one'])
        assert get_platform('my_lab.big.one').label == 'my_lab.big.one'

    def test_home_is_the_default_place(self, configs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', '')
        monkeypatch.setenv('HOME', str(tmp_path))
        write(configs, 'mine', {'one': MINIMAL})
        assert 'mine.one' in list_platforms()

    def test_other_files_are_ignored(self, configs: Path) -> None:
        (configs / 'agent_default.json').write_text('no json')
        (configs / 'resource_x.json.bak').write_text('no json')
        assert list_platforms() == IN_USE

    def test_comments(self, configs: Path) -> None:
        write(configs, 'mine', """
            # a comment with a "quote
            {"one": {"resource_manager": "FORK",   # another
                     "description": "a # that \\" # stays", #
                     "launch_methods": {"order": ["FORK"]}}}
            # last""")
        assert get_platform('mine.one').description == 'a # that " # stays'

    def test_schemas(self, configs: Path) -> None:
        schemas = {'batch': {'job_manager_endpoint': 'slurm://localhost/'},
                   'ssh': {'job_manager_endpoint': 'slurm+ssh://host/', 'job_manager_hop': 'ssh://host/'}}
        write(configs, 'mine', {'one': {**MINIMAL, 'schemas': schemas},
                                'two': {**MINIMAL, 'schemas': schemas, 'default_schema': 'ssh'},
                                'none': MINIMAL})
        assert get_platform('mine.one').job_manager_endpoint == 'slurm://localhost/'
        assert get_platform('mine.two').job_manager_endpoint == 'slurm+ssh://host/'
        assert get_platform('mine.two').job_manager_hop == 'ssh://host/'
        assert get_platform('mine.two', 'batch').job_manager_hop == ''
        assert get_platform('mine.none').job_manager_endpoint == ''
        with pytest.raises(PlatformError, match='only: none'):
            get_platform('mine.none', 'ssh')


class TestBrokenFiles:
    def check(self, configs: Path, content: object, *words: str) -> None:
        path = write(configs, 'mine', content)
        with pytest.raises(PlatformError) as caught:
            get_platform('mine.one')
        for word in (str(path), *words):
            assert word in str(caught.value)

    @pytest.mark.parametrize(('content', 'line'), [
        ('{"one": {\n"cores_per_node": 2,,\n}}', 'line 2'),
        ('{"one": \n\n  nothing}', 'line 3'),
        ('# only a comment\n', 'line 2'),
        ('[]', 'line 1'),
    ])
    def test_json_names_file_line_and_reason(self, configs: Path, content: object, line: str) -> None:
        self.check(configs, content, line)

    def test_not_text(self, configs: Path) -> None:
        path = configs / 'resource_mine.json'
        path.write_bytes(b'{"\xff"}')
        with pytest.raises(PlatformError, match='not UTF-8'):
            get_platform('mine.one')

    def test_unreadable_file(self, configs: Path) -> None:
        (configs / 'resource_mine.json').mkdir()
        with pytest.raises(PlatformError, match=r'resource_mine\.json: Is a directory'):
            list_platforms()

    def test_unknown_key_names_the_nearest(self, configs: Path) -> None:
        self.check(configs, {'one': {**MINIMAL, 'core_per_node': 2}}, 'mine.one', "'core_per_node'",
                   "did you mean 'cores_per_node'")

    def test_unknown_nested_keys(self, configs: Path) -> None:
        self.check(configs, {'one': {**MINIMAL, 'raptor': {'hb_dely': 2}}}, 'mine.one', "'hb_delay'")
        self.check(configs, {'one': {**MINIMAL, 'schemas': {'ssh': {'job_endpoint': ''}}}}, "'job_endpoint'")

    def test_old_key_names_the_new_one(self, configs: Path) -> None:
        self.check(configs, {'one': {'lrms': 'FORK'}}, "'lrms'", "it is now 'resource_manager'")

    def test_bad_type(self, configs: Path) -> None:
        self.check(configs, {'one': {**MINIMAL, 'cores_per_node': 'all'}}, 'mine.one',
                   "cores_per_node must be an integer that is not negative, not 'all'")
        self.check(configs, {'one': ['FORK']}, 'mine.one', 'takes a dict')

    @pytest.mark.parametrize(('values', 'words'), [
        ({'resource_manager': None}, 'resource_manager is required'),
        ({'virtenv_mode': 'locl'}, "virtenv_mode must be one of local, none, private, create, update, use, "
                                   "recreate, not 'locl'"),
        ({'python_dist': 'x'}, 'python_dist must be one of default, anaconda'),
        ({'default_schema': 'ssh'}, 'default_schema'),
        ({'shell': 'bin/ksh'}, "shell must be the name of a program or an absolute path, without white space, "
                               "not 'bin/ksh'"),
        ({'shell': 'bash -l'}, "shell must be the name of a program"),
        ({'task_environment': {'A=B': 'c'}}, "no NUL characters, not 'A=B': 'c'"),
        ({'shell': '-c'}, "shell must be the name of a program"),
        ({'launch_methods': {'order': None}}, 'launch_methods'),
        ({'launch_methods': {'MPIRUN': 3}}, 'launch_methods.MPIRUN must be a dict'),
        ({'n_partitions': 0}, 'n_partitions'),
        ({'system_architecture': {'smt': 0}}, 'smt must be a number of hardware threads for each core'),
        ({'system_architecture': {'smt': True}}, 'system_architecture.smt must be'),
        ({'system_architecture': {'blocked_cores': ['0']}}, "blocked_cores must be a list of indices, not ['0']"),
        ({'system_architecture': {'options': 'nvme'}}, "options must be a list of constraints for the batch system"),
        ({'system_architecture': {'torus': [4, 0]}}, 'system_architecture.torus must be a list of extents'),
        ({'system_architecture': {'exclusive': 'no'}}, "system_architecture.exclusive must be true or false, not 'no'"),
    ])
    def test_senseless_values(self, configs: Path, values: dict[str, Any], words: str) -> None:
        self.check(configs, {'one': merge(MINIMAL, values)}, 'mine.one', words)

    def test_the_users_file_is_named_not_ours(self, configs: Path) -> None:
        path = write(configs, 'local', {'localhost': {'coresper_node': 2}})
        with pytest.raises(PlatformError) as caught:
            get_platform('local.localhost')
        assert str(caught.value).startswith(f'{path}, local.localhost:')


class TestResourceConfig:
    def test_defaults(self) -> None:
        config = ResourceConfig()
        assert config.agent_config == 'default'
        assert config.raptor == RaptorConfig(hb_delay=5, hb_timeout=500, hb_frequency=1000)
        assert config.new_session_per_task is True
        assert config.n_partitions == 1
        assert config.scattered is True
        assert config.numa_domain_map == {}

    def test_the_transport_of_workers(self) -> None:
        assert ResourceConfig(raptor={'transport': 'mpi'}).raptor.hb_timeout == 500
        ResourceConfig({**MINIMAL, 'raptor': {'transport': 'mpi'}}).verify()
        with pytest.raises(DescriptionError, match=r"raptor\.transport must be one of mpi, zmq, or empty, not 'tcp'"):
            ResourceConfig({**MINIMAL, 'raptor': {'transport': 'tcp'}}).verify()

    def test_casts(self) -> None:
        config = ResourceConfig(cores_per_node='8', fake_resources='yes', task_pre_exec='module load x',
                                agent_config={'a': 1}, task_environment={'A': 1},
                                numa_domain_map={0: {'cores': [0]}}, schemas={'ssh': {}})
        assert config.cores_per_node == 8
        assert config.fake_resources is True
        assert config.task_pre_exec == ['module load x']
        assert config.agent_config == {'a': 1}
        assert config.task_environment == {'A': '1'}
        assert config.numa_domain_map == {'0': {'cores': [0]}}
        assert config.schemas['ssh'] == AccessSchema()
        config.virtenv = 'x'
        assert config['virtenv'] == 'x'

    @pytest.mark.parametrize('values', [
        {'agent_config': 3}, {'fake_resources': 'maybe'}, {'schemas': ['ssh']}, {'launch_methods': ['FORK']},
        {'description': []}, {'raptor': 3}, {'task_environment': {'A': []}}, {'n_partitions': 1.5},
        {'raptor': {'hb_delay': float('inf')}}, {'raptor': {'hb_delay': 'soon'}}])
    def test_bad_types(self, values: dict[str, Any]) -> None:
        with pytest.raises(AttributeTypeError, match=next(iter(values)) + '|hb_delay'):
            ResourceConfig(values)

    def test_unknown_field(self) -> None:
        with pytest.raises(AttributeUnknown):
            ResourceConfig().corespernode = 3
        with pytest.raises(DescriptionError):
            ResourceConfig({'zzz': 3})


class TestFill:
    def test_placeholders(self) -> None:
        description = {'project': 'abc_1', 'cores': 0, 'queue': None}
        assert fill('/%(pd.project)s/%(pd.PROJECT)s/%(pd.cores)s', description) == '/abc_1/ABC_1/0'
        assert fill({'a': ['%(pd.cores)s', 1]}, description) == {'a': ['0', 1]}
        assert fill('100% (pd.cores)', description) == '100% (pd.cores)'

    @pytest.mark.parametrize('name', ['queue', 'nothing'])
    def test_missing_attribute(self, name: str) -> None:
        with pytest.raises(PlatformError, match=rf'%\(pd.{name}\)s .* {name!r}'):
            fill(f'%(pd.{name})s', {'queue': None})


    def test_a_whole_definition(self) -> None:
        config = ResourceConfig({'default_queue': '%(pd.queue)s', 'default_remote_workdir': '/w/%(pd.project)s',
                                 'virtenv': '/ve/%(pd.project)s', 'launch_methods': {'order': ['SRUN'], 'SRUN': {
                                     'options': {'account': '%(pd.PROJECT)s'}}}})
        found = filled(config, {'project': 'abc', 'queue': None})   # which the platform is not asked for
        assert (found.virtenv, found.launch_methods['SRUN']['options']['account']) == ('/ve/abc', 'ABC')
        assert (found.default_queue, found.default_remote_workdir) == ('%(pd.queue)s', '/w/%(pd.project)s')


class TestOtherConfigs:
    def test_without_a_file(self) -> None:
        assert load_config('session') == {}
        with pytest.raises(PlatformError, match=r'agent_mine\.json: No such file'):
            load_config('agent', 'mine')

    def test_environment(self, configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv('RP_TEST_SET', 'value')
        monkeypatch.delenv('RP_TEST_UNSET', raising=False)
        (configs / 'session_default.json').write_text("""{
            "a": "${RP_TEST_SET:x}/${RP_TEST_UNSET:y}", "b": ["${RP_TEST_UNSET}", 3],
            "c": {"d": "${RP_TEST_UNSET:$RP_TEST_SET}"}}""")
        assert load_config('session') == {'a': 'value/y', 'b': ['', 3], 'c': {'d': 'value'}}

    def test_platforms_are_not_expanded(self, configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv('RP_TEST_SET', 'value')
        write(configs, 'mine', {'one': {**MINIMAL, 'virtenv': '${RP_TEST_SET}'}})
        assert get_platform('mine.one').virtenv == '${RP_TEST_SET}'

    def test_read_json_without_comments(self, tmp_path: Path) -> None:
        path = tmp_path / 'x.json'
        path.write_text('{"a": [1, "#"]}')
        assert read_json(str(path)) == {'a': [1, '#']}
