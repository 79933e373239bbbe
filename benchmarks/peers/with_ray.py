"""Processes through Ray: tasks of one CPU, two CPUs."""

import os
import sys

os.environ['RAY_USAGE_STATS_ENABLED'] = '0'

import ray
from process_task import FUNCTIONS, measure


def main() -> None:
    # the file names of its sockets are long, so the directory's must be short
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address='127.0.0.1', _temp_dir=os.path.abspath('r'),
             object_store_memory=500 * 1024 * 1024, log_to_driver=False, logging_level='error')
    try:
        task = ray.remote(FUNCTIONS[sys.argv[1]])
        measure(lambda directory, count: ray.get([task.remote(directory, number) for number in range(count)]))
    finally:
        ray.shutdown()


if __name__ == '__main__':
    main()
