"""A Grid Engine for tests: a master and one execution host as processes of this machine, at ports of its own.

It has a cell, a spool and an accounting file in its own directory; of the Debian packages it takes the programs only.
Root runs it and may submit to it. The host is called localhost, and has more slots than the machine has cores.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clusters import Cluster, own_directory, require, require_root
from ports import free_ports

PROGRAMS = ('sge_qmaster', 'sge_execd', 'qconf', 'qsub', 'qstat')
BINARIES = Path('/usr/lib/gridengine')
SHARED = Path('/usr/share/gridengine')

BOOTSTRAP = '''\
admin_user              none
default_domain          none
ignore_fqdn             false
spooling_method         berkeleydb
spooling_lib            libspoolb
spooling_params         {directory}/spool
binary_path             /usr/sbin
qmaster_spool_dir       {directory}/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
'''

SETTINGS = {'execd_spool_dir': '{directory}/execd', 'min_uid': '0', 'min_gid': '0', 'mailer': '/bin/true',
            'reporting_params': 'accounting=true reporting=false flush_time=00:00:01 '
                                'accounting_flush_time=00:00:00 joblog=false sharelog=00:00:00'}
SCHEDULER = {'schedule_interval': '0:0:1', 'flush_submit_sec': '1', 'flush_finish_sec': '1'}
# the shell starts scripts without a line that names one, as those of SAGA; a host that is loaded takes jobs as well
QUEUE = {'qname': 'all.q', 'hostlist': '@allhosts', 'slots': '{slots}', 'shell': '/bin/bash',
         'load_thresholds': 'NONE', 'pe_list': 'MPI'}

ENVIRONMENT = '''\
pe_name MPI
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $pe_slots
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary TRUE
qsort_args NONE
'''


class GridEngine(Cluster):
    """A running Grid Engine; programs find it through `environ`."""

    def __init__(self, directory: Path, slots: int) -> None:
        master, execution = free_ports(2)
        super().__init__(directory, {
            'SGE_ROOT': str(directory), 'SGE_CELL': 'default', 'SGE_QMASTER_PORT': str(master),
            'SGE_EXECD_PORT': str(execution), 'SGE_ND': '1'})   # daemons stay in the foreground
        self.slots = slots

    def start(self) -> None:
        """Returns when jobs can be submitted and run."""
        self._prepare()
        self.start_master()
        self.wait(lambda: self.run('qconf', '-sh', check=False).split() == ['localhost'], 'the master')
        self.run('qconf', '-as', 'localhost')   # may submit jobs
        self._add('-Ahgrp', 'group_name @allhosts\nhostlist localhost\n')
        self._add('-Ap', ENVIRONMENT)
        self._add('-Aq', self._changed(self.run('qconf', '-sq'), QUEUE))
        self._add('-Msconf', self._changed(self.run('qconf', '-ssconf'), SCHEDULER))
        self.daemon('sge_execd')
        self.wait(self._ready, 'the queue')

    def start_master(self) -> None:
        """Start the master."""
        self._master = self.daemon('sge_qmaster')

    def stop_master(self) -> None:
        """End the master; its jobs go on."""
        self.forget(self._master)
        self._master.terminate()
        self._master.wait()

    def _prepare(self) -> None:
        common = self.directory / 'default' / 'common'
        for name in (common, self.directory / 'qmaster' / 'job_scripts', self.directory / 'execd',
                     self.directory / 'spool'):
            name.mkdir(parents=True)
        for kind in ('bin', 'lib', 'utilbin'):
            (self.directory / kind).mkdir()
            (self.directory / kind / 'lx-amd64').symlink_to(BINARIES)
        (self.directory / 'util').symlink_to(SHARED / 'util')
        (common / 'bootstrap').write_text(BOOTSTRAP.format(directory=self.directory))
        (common / 'act_qmaster').write_text('localhost\n')
        (common / 'host_aliases').write_text(f'localhost {socket.gethostname()}\n')
        configuration = self.directory / 'configuration'
        configuration.write_text(self._changed((SHARED / 'default-configuration').read_text(), SETTINGS))
        self.run(str(BINARIES / 'spoolinit'), 'berkeleydb', 'libspoolb', f'{self.directory}/spool', 'init')
        for kind, source in (('configuration', configuration), ('complexes', SHARED / 'util/resources/centry'),
                             ('usersets', SHARED / 'util/resources/usersets'), ('managers', 'root')):
            self.run(str(BINARIES / 'spooldefaults'), kind, str(source))

    def _changed(self, text: str, values: dict[str, str]) -> str:
        """A configuration in which those lines have other values."""
        lines = []
        for line in text.splitlines():
            name = line.partition(' ')[0]
            value = values.get(name, '').format(directory=self.directory, slots=self.slots)
            lines.append(f'{name} {value}' if value else line)
        return '\n'.join(lines) + '\n'

    def _add(self, option: str, text: str) -> None:
        path = self.directory / 'change'
        path.write_text(text)
        self.run('qconf', option, str(path))

    def _ready(self) -> bool:
        lines = [line.split() for line in self.run('qstat', '-f', check=False).splitlines() if 'all.q@' in line]
        return bool(lines) and len(lines[0]) == 5   # a sixth column tells what is wrong


@contextmanager
def grid_engine(slots: int = 16) -> Iterator[GridEngine]:
    """A Grid Engine with one host of so many slots, which ends with all of its jobs."""
    require(*PROGRAMS)
    require_root('run Grid Engine for everybody')
    with own_directory('sge.') as directory:
        cluster = GridEngine(directory, slots)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
