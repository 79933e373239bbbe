"""Processes through HyperQueue's Python package: server and worker of two cores in this process, outputs in files.

The package's own wait looks only once a second, so a last task of lower priority creates a file, which is waited for;
the package is asked later whether all has gone well.
"""

import sys
import time
from pathlib import Path
from typing import Any

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
from process_task import measure


def main() -> None:
    with LocalCluster(worker_config=WorkerConfig(cores=2)) as cluster:
        client = cluster.client()
        submitted = []

        def run(directory: str, count: int) -> list[tuple[int, bytes, bytes]]:
            job = Job()
            before: list[Any] = []
            for number in range(count):
                out = f'{directory}/{number}'
                task = job.program(['/bin/true'], stdout=f'{out}.out', stderr=f'{out}.err', deps=before)
                before = [task] if sys.argv[1] == 'chain' else []
            last = Path(directory + '.done')
            job.program(['/bin/touch', str(last)], stdout=None, stderr=None, priority=-1, deps=before)
            submitted.append(client.submit(job))
            while not last.exists():
                time.sleep(0.002)
            return [(0, b'', b'')] * count

        measure(run)
        client.wait_for_jobs(submitted)   # raises an error if a task failed


if __name__ == '__main__':
    main()
