"""A Slurm for tests: a controller and nodes as processes of this machine, which use nothing that others may use.

The nodes have faked cores and GPUs (character devices that do nothing). On one host they are called n1, n2 ..., and
share file system, host name and network, as Debian's Slurm is built for several `slurmd` on one host. On hosts of their
own (`ssh_hosts.Namespaces`) they have the names of these, and share the file system; the controller is on the last one.
"""

from __future__ import annotations

import getpass
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clusters import Cluster, own_directory, require
from ports import free_ports
from ssh_hosts import Namespaces

PROGRAMS = ('munged', 'slurmctld', 'slurmd', 'sbatch', 'srun')

CONFIGURATION = '''\
ClusterName=rptests
SlurmctldHost={host}({address})
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool.%n
TmpFS={directory}/tmp.%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={directory}/jobcomp.txt
MinJobAge=300
FirstJobId={first}
EnforcePartLimits=ALL
InactiveLimit=0
KillWait=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0,defer_batch,sched_interval=1
MessageTimeout=30
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
GresTypes=gpu
NodeName={nodes} {where} CPUs={cores} Boards=1 \
SocketsPerBoard=1 CoresPerSocket={cores} ThreadsPerCore=1 RealMemory=16000 Gres=gpu:{gpus} State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL MaxTime=30 State=UP
PartitionName=urgent Nodes=ALL MaxTime=30 State=UP PriorityTier=10
PartitionName=closed Nodes=ALL MaxTime=30 State=DOWN
'''


class SlurmCluster(Cluster):
    """A running Slurm; programs find it through `environ`."""

    def __init__(self, directory: Path, nodes: int, cores: int, gpus: int, prefix: Sequence[str],
                 hosts: Namespaces | None) -> None:
        super().__init__(directory, {'SLURM_CONF': f'{directory}/slurm.conf'},
                         hosts.prefix(hosts.names[-1]) if hosts else prefix)
        self.nodes, self.cores, self.gpus = nodes, cores, gpus
        self._hosts = hosts
        self.node_names = [f'{"h" if hosts else "n"}{index}' for index in range(1, nodes + 1)]

    def start(self) -> None:
        """Returns when all nodes are idle."""
        self._configure()
        munge = self.directory / 'munge'
        self.daemon('munged', '--foreground', '--force', f'--key-file={munge}.key', f'--socket={munge}.sock',
                    f'--pid-file={munge}.pid', f'--log-file={munge}.log', f'--seed-file={munge}.seed',
                    '--num-threads=4')
        self.wait(Path(f'{munge}.sock').exists, 'munge')
        self.start_controller()
        for name in self.node_names:
            self.daemon('slurmd', '-D', '-f', f'{self.directory}/slurm.conf', '-N', name,
                        prefix=self._hosts.prefix(name) if self._hosts else None)
        self.wait(self._idle, 'all nodes idle')

    def start_controller(self) -> None:
        """Start slurmctld."""
        self._controller = self.daemon('slurmctld', '-D', '-f', f'{self.directory}/slurm.conf')

    def stop_controller(self) -> None:
        """End slurmctld; nodes and jobs go on."""
        self.forget(self._controller)
        self._controller.terminate()
        self._controller.wait()

    def jobs(self) -> dict[str, str]:
        """The states of all jobs, by id; Slurm remembers ended ones."""
        lines = self.run('squeue', '-h', '-t', 'all', '-o', '%i %T').splitlines()
        return dict(line.split() for line in lines)

    def _configure(self) -> None:
        for name in ('state', *(f'{kind}.{node}' for kind in ('spool', 'tmp') for node in self.node_names)):
            (self.directory / name).mkdir()
        key = self.directory / 'munge.key'
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        port, *node_ports = free_ports(1 + self.nodes)
        listed = ','.join(map(str, node_ports))
        host = self.run('hostname').strip()
        if self._hosts:
            address, where = self._hosts.address(host), f'Port={port}'   # the addresses are those of the names
        else:
            address, where = '127.0.0.1', f'NodeHostname={host} NodeAddr=127.0.0.1 Port=[{listed}]'
        (self.directory / 'slurm.conf').write_text(CONFIGURATION.format(
            directory=self.directory, host=host, address=address, user=getpass.getuser(), port=port,
            first=1000 + secrets.randbelow(10**6),   # MPI programs of two clusters with the same ids meet on one host
            where=where, nodes=','.join(self.node_names), cores=self.cores, gpus=self.gpus))
        for index in range(self.gpus):
            os.symlink('/dev/null', self.directory / f'nvidia{index}')
        (self.directory / 'gres.conf').write_text(
            f'AutoDetect=off\nName=gpu File={self.directory}/nvidia[0-{self.gpus - 1}]\n')

    def _idle(self) -> bool:
        return self.run('sinfo', '-h', '-p', 'debug', '-t', 'idle', '-o', '%D', check=False).strip() == str(self.nodes)


@contextmanager
def slurm_cluster(nodes: int = 4, cores: int = 8, gpus: int = 2, prefix: Sequence[str] = (),
                  hosts: Namespaces | None = None) -> Iterator[SlurmCluster]:
    """A Slurm of that size, which ends with all of its jobs.

    It is on this host, or where commands run that have `prefix` before them, or on `hosts`, one more than it has nodes.
    """
    require(*PROGRAMS)
    with own_directory('slurm.') as directory:
        cluster = SlurmCluster(directory, nodes, cores, gpus, prefix, hosts)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
