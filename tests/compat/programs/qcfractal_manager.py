"""QCFractal's server with a compute manager whose tasks run through Parsl on a pilot.

The manager of QCFractal 0.71 knows two of Parsl's executors by name; here it is given a third one, for which it has no
setting. Its PostgreSQL server runs as an ordinary user, as it refuses to run as root.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import parsl.executors.base
from parsl.executors.radical import RadicalPilotExecutor, ResourceConfig
from qcfractal.config import DatabaseConfig
from qcfractal.postgres_harness import PostgresHarness
from qcfractal.snowflake import FractalSnowflake
from qcfractalcompute import compute_manager
from qcfractalcompute.config import ExecutorConfig, FractalComputeConfig, FractalServerSettings, LocalExecutorConfig
from qcportal.molecules import Molecule

WATER = Molecule(symbols=['O', 'H', 'H'], geometry=[0, 0, 0, 0, 1.43, 1.1, 0, -1.43, 1.1],
                 connectivity=[(0, 1, 1), (0, 2, 1)])
AT_ONCE = 2
DEADLINE = 240.0


def on_a_pilot(label: str, config: ExecutorConfig) -> parsl.executors.base.ParslExecutor:
    return RadicalPilotExecutor(label=label, rpex_cfg=ResourceConfig(), resource='local.localhost', runtime=10,
                                cores=AT_ONCE + 1)


class Manager(compute_manager.ComputeManager):
    @staticmethod
    def _get_max_workers(executor: parsl.executors.base.ParslExecutor) -> int:
        return AT_ONCE


@contextmanager
def database() -> Iterator[DatabaseConfig]:
    """A PostgreSQL server on loopback, as user `nobody` if this is root."""
    programs = subprocess.run(['pg_config', '--bindir'], capture_output=True, text=True, check=True).stdout.strip()
    place = tempfile.mkdtemp()
    user = pwd.getpwnam('nobody')
    demoted = {'user': user.pw_uid, 'group': user.pw_gid, 'extra_groups': []} if os.geteuid() == 0 else {}
    if demoted:
        os.chown(place, user.pw_uid, user.pw_gid)
    with socket.create_server(('127.0.0.1', 0)) as probe:
        port = probe.getsockname()[1]
    data = Path(place, 'data')
    subprocess.run([f'{programs}/initdb', '--username', 'qc', '--auth', 'trust', '--no-sync', '-D', str(data)],
                   check=True, stdout=subprocess.DEVNULL, cwd=place, **demoted)
    on = ['-h', '127.0.0.1', '-p', str(port)]
    server = subprocess.Popen([f'{programs}/postgres', '-D', str(data), *on, '-k', place], cwd=place, **demoted)
    try:
        while subprocess.run([f'{programs}/pg_isready', '-q', '-U', 'qc', '-d', 'postgres', *on]).returncode:
            assert server.poll() is None, 'PostgreSQL does not start'
            time.sleep(0.1)
        config = DatabaseConfig(base_folder=place, host='127.0.0.1', port=port, database_name='qc', username='qc',
                                password='', own=False)
        PostgresHarness(config).create_database(create_tables=True)
        yield config
    finally:
        server.send_signal(signal.SIGINT)   # a fast shutdown
        server.wait()
        shutil.rmtree(place)


def run(server: FractalSnowflake) -> None:
    manager = Manager(FractalComputeConfig(
        base_folder=os.getcwd(), cluster='pilot', update_frequency=1,
        server=FractalServerSettings(fractal_uri=server.get_uri(), verify=False),
        executors={'pilot': LocalExecutorConfig(cores_per_worker=1, memory_per_worker=1, max_workers=AT_ONCE,
                                                compute_tags=['*'])}))
    thread = threading.Thread(target=manager.start)
    thread.start()
    try:
        client = server.client()
        _, ids = client.add_singlepoints([WATER], 'rdkit', 'energy', 'uff', None)
        deadline = time.monotonic() + DEADLINE
        while (record := client.get_singlepoints(ids)[0]).status not in ('complete', 'error'):
            assert time.monotonic() < deadline, record.status
            time.sleep(1)
        assert record.status == 'complete', record.error
        print(f'energy {record.return_result:.6f} by {record.manager_name}')
    finally:
        manager.stop()
        thread.join()


if __name__ == '__main__':
    compute_manager.build_executor = on_a_pilot
    with database() as configured:
        snowflake = FractalSnowflake(compute_workers=0, database_config=configured)
        try:
            run(snowflake)
        finally:
            snowflake.stop()
    print('task complete')
