"""The program `rp-agent CONFIG`, which launchers and bootstrappers start: runs the agent of a pilot."""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from rp_agent import limits, logs, sandbox
from rp_agent.components.build import HOST_CLOCK, belongs
from rp_agent.lineage import become_subreaper
from rp_agent.node_copies import place
from rp_agent.nodes import guard
from rp_api import distributions, states
from rp_api.errors import PilotError, sentence
from rp_api.loop.event_loop import Loop
from rp_api.loop.process_handle import ProcessHandle
from rp_api.loop.signal_watch import watch
from rp_api.system import private, shared_directory, signals
from rp_api.system.agent_process import AgentProcess, noted
from rp_profiling.write.tracer import Tracer

if TYPE_CHECKING:   # only one of them is needed
    from rp_agent.agent import Agent
    from rp_agent.nodes.relocation import RelocatedAgent
    from rp_agent.partitions.pilot_supervisor import PilotSupervisor

_log = logging.getLogger('radical.pilot.agent')


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an agent until its pilot ends and return the exit code. The client shows what is on standard error."""
    signals.set_defaults()
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 1:
        print('usage: rp-agent CONFIG   (a file that the client has written)', file=sys.stderr)
        return 2
    try:
        config = _read(arguments[0])
        direct = 'launcher' in config
        if not _is_wanted(config):
            print(f'rp-agent: process {os.getpid()} ends: another process is the agent of this pilot', file=sys.stderr)
            return 0
        sandbox.enter(config)
        logs.start(f'{config["agent_uid"]}.log')
    except (OSError, ValueError) as error:
        print(f'rp-agent: cannot use {arguments[0]}: {error}', file=sys.stderr)
        return 2
    try:
        distributions.check_upstream()
        with _bootstrap(config) if direct else nullcontext():
            _run(config)
    except PilotError as error:
        _log.exception('the agent ends because of an error')
        print(f'rp-agent: {error}', file=sys.stderr)
        return 1
    return 0


def _read(path: str) -> dict[str, Any]:
    """Return the configuration in a file; raise `OSError` if it cannot be read, `ValueError` if it is not one."""
    config = json.loads(private.read_file(path).decode())
    if not isinstance(config, dict) or not isinstance(config.get('pilot_sandbox'), str):
        raise ValueError('it is not the configuration of an agent, which names a pilot_sandbox')
    return {'agent_uid': 'agent_0', **config}


def _is_wanted(config: dict[str, Any]) -> bool:
    """Return whether the launcher has recorded this process as the agent (see `agent_process`).

    A launcher on this host closes our standard input when it has done so. Other agents have no such launcher.
    """
    launcher = config.pop('launcher', None)
    if launcher is None:
        return True
    handle = ProcessHandle.open(launcher)
    if handle is not None:
        if os.getppid() == launcher:   # else the launcher has died
            select.select([sys.stdin, handle], [], [])
        handle.close()
    return noted(config['pilot_sandbox']) == AgentProcess.of(os.getpid())


@contextmanager
def _bootstrap(config: dict[str, Any]) -> Iterator[None]:
    """Record the bootstrap of an agent that its launcher has started directly; in a job, stage 0 records it."""
    path = f'{config["pilot_sandbox"]}/bootstrap_0.prof' if config['profile'] else None
    with closing(Tracer(path, 'bootstrap_0', clock=HOST_CLOCK)) as tracer:
        tracer.record_many(config['pilot'], ('bootstrap_0_start', 'bootstrap_0_ok'), os.uname().nodename)
        tracer.flush()   # tasks may stage the file
        try:
            yield
        finally:
            tracer.record('bootstrap_0_stop', config['pilot'])


def _run(config: dict[str, Any]) -> None:
    gc.set_threshold(100_000, 20, 20)   # tasks come and go by the thousand, and none is part of a reference cycle
    limits.prepare(config, 'the agent')
    with suppress(OSError):
        shared_directory.sweep()   # what killed agents and workers have left
    loop = Loop()
    with closing(loop), _in_charge(config, loop) as in_charge:
        _on_signal(config, loop, in_charge)
        try:
            loop.run()
        except PilotError:
            raise
        except Exception as error:
            # components handle errors that concern one task; an error that arrives here is a defect of the agent
            _log.exception('the agent has a defect')
            in_charge.finish(states.FAILED, f'ended because of a defect of its agent: {sentence(error)}')
            loop.run()   # until the pilot has ended, or the error occurs again
            raise


@contextmanager
def _in_charge(config: dict[str, Any], loop: Loop) -> Iterator[Agent | PilotSupervisor | RelocatedAgent]:
    """Yield the agent of a pilot or of one partition, the supervisor of a pilot with partitions, or its launcher."""
    if config.get('agent', {}).get('target') == 'node':
        from rp_agent.nodes import relocation

        if config.get('relocated'):
            config = relocation.arrive(config)
            of_partition = 'keeper' in config
            if of_partition:
                from rp_agent.partitions.control_channel import of_launcher

                config['keeper'] = of_launcher()
            with _on_the_spot(config, loop) as in_charge:
                if not of_partition:
                    relocation.RelocationWatch(loop, in_charge.told_to_end)
                yield in_charge
            return
        allocation = relocation.elsewhere(config)
        if allocation is not None:
            with closing(relocation.RelocatedAgent(config, loop, allocation)) as launched:
                yield launched
                launched.check()
            return
    with _on_the_spot(config, loop) as in_charge:
        yield in_charge


@contextmanager
def _on_the_spot(config: dict[str, Any], loop: Loop) -> Iterator[Agent | PilotSupervisor]:
    """Yield the agent of a pilot or of one partition, or the supervisor of a pilot with partitions, on this host."""
    if config.get('partitions'):
        from rp_agent.partitions.pilot_supervisor import PilotSupervisor

        with closing(PilotSupervisor(config, loop)) as supervisor:
            yield supervisor
        return
    # first: the guard keeps the modules that are loaded when it starts
    guard.start(belongs(config), place.directory(config, os.environ))
    from rp_agent.agent import Agent

    become_subreaper()
    with closing(Agent(config, loop)) as agent:
        if 'keeper' not in config:
            yield agent
            return
        from rp_agent.partitions.control_channel import obey

        with closing(obey(agent, loop, config['keeper'])):
            yield agent


def _on_signal(config: dict[str, Any], loop: Loop, in_charge: Agent | PilotSupervisor | RelocatedAgent) -> None:
    """End the pilot when SIGTERM or SIGINT arrives, and note warnings: in the event loop, between two events.

    Grid Engine announces SIGKILL by SIGUSR2 to jobs that were submitted with `-notify`, and sends no SIGTERM.
    """
    def received(number: int) -> None:
        if number in ending:
            in_charge.told_to_end()
        else:
            in_charge.warned(number)

    ending = {signal.SIGTERM, signal.SIGINT}
    if config['platform'].get('resource_manager') == 'SGE':
        ending.add(signal.SIGUSR2)
    for number in ending:
        signal.signal(number, signals.survive)
    watch(loop, {*ending, *signals.WARNINGS}, received)
