"""Stage 1: Python on the first node of the job. Prepares the sandbox, starts the agent, and waits for its end.

The agent is `agent_0`. In a pilot with partitions this is the supervisor (`pilot_supervisor.py`), which starts one
agent per partition.
"""

from __future__ import annotations

import glob
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rp_agent.bootstrap import checks, environment, stage_2
from rp_agent.bootstrap.child import Child
from rp_agent.bootstrap.failure import BootstrapError, report
from rp_agent.bootstrap.tunnel import through_tunnel
from rp_agent.lineage import die_with_parent
from rp_api.system import private, signals
from rp_api.system.host import with_home

AGENT = 'agent_0'

CONFIG_ERROR, PREPARATION_ERROR = 20, 21
STARTED_AGAIN = 24


def main() -> int:
    """Run the agent of the pilot in the current directory until it ends; return the exit code."""
    signals.set_defaults()
    stage_0 = os.getppid()
    die_with_parent(stage_0)
    try:
        with Child() as child:
            config = _prepare(stage_0)
            child.start(['/bin/sh', stage_2.FILE, AGENT], AGENT)
            _record('bootstrap_0_ok', config)
            try:
                return child.wait()
            finally:
                _record('agent_gone', config)
    except BootstrapError as error:
        report(1, error)
        return error.code
    except OSError as error:
        report(1, BootstrapError(PREPARATION_ERROR, f'the pilot cannot be prepared on {os.uname().nodename}: {error}'))
        return PREPARATION_ERROR


def _prepare(stage_0: int) -> dict[str, Any]:
    """Write the files that the agent needs, check the node, and return the agent's configuration."""
    config = _read_config()
    _note_run(config)
    config['environment'] = with_home(environment.without_virtualenv(environment.of_process(stage_0)))
    tunnel = os.environ.get('RP_TUNNEL')
    if tunnel:
        config['coordination'] = through_tunnel(config['coordination'], tunnel)
    private.write_file(f'{AGENT}.cfg', json.dumps(config, indent=1).encode())
    checks.clock(config.get('submitted', 0), time.time(), os.stat(f'{AGENT}.cfg').st_mtime)
    checks.hub_answers(config['coordination'])
    platform = config['platform']
    stage_2.write(os.getcwd(), os.environ, platform['pre_bootstrap_1'], platform.get('shell', ''))
    return config


def _read_config() -> dict[str, Any]:
    path = os.path.abspath(f'{AGENT}.cfg')
    try:
        config = json.loads(private.read_file(path).decode())
        if not isinstance(config, dict):
            raise ValueError('it is not a JSON object')
        _ = config['coordination']['backend'], config['pilot'], config['profile'], config['platform']['pre_bootstrap_1']
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BootstrapError(CONFIG_ERROR, f'{path}, which the client writes, cannot be used: {error!r}') from error
    return config


def _note_run(config: dict[str, Any]) -> None:
    """Record this run in the configuration; raise `BootstrapError` if the job has run before and may not continue."""
    earlier = config.get('run')
    if earlier is not None:
        pilot, host = config['pilot'], earlier['host']
        again = f'the batch system has started the job of {pilot} again, after it had run on {host}'
        if not config.get('requeue'):
            raise BootstrapError(STARTED_AGAIN, f'{again}: a pilot continues only if its description has requeue=True')
        if config.get('partitions'):
            raise BootstrapError(STARTED_AGAIN, f'{again}: a pilot with partitions cannot continue')
        config['earlier'] = earlier
        for path in glob.glob('agent_*.prof'):   # one run per trace
            os.replace(path, f'{path}.old')
    config['run'] = {'host': os.uname().nodename, 'time': time.time()}


def _record(event: str, config: Mapping[str, Any]) -> None:
    """Append an event to the trace of stage 0; ignore errors."""
    if config['profile']:
        with suppress(OSError), open('bootstrap_0.prof', 'a', encoding='utf-8') as file:
            file.write(f'{time.time():.7f},{event},bootstrap_0,MainThread,{config["pilot"]},,\n')


if __name__ == '__main__':
    sys.exit(main())
