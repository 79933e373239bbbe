"""The supervisor of a pilot with partitions: divides its resources, and runs an agent for each partition.

To the coordinator, each partition is a pilot: it exchanges tasks, heartbeats and states with the partition's agent.
The supervisor reports on the pilot as a whole, and on partitions without a living agent.

Rules of this file:

- The resources of a partition are free only when its agent and all processes that it has started have ended.
- The pilot is active when its first partitions are. It ends by a command, or when its last partition has failed, but
  not when all partitions were removed.
- An agent has `KILL_GRACE` seconds to end after a command. No agent outlives the supervisor.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rp_agent.components.build import belongs, make_tracer
from rp_agent.lifetime import Lifetime
from rp_agent.partitions.control_channel import Message
from rp_agent.partitions.division import Divider, Parts, allocation_of, is_part
from rp_agent.partitions.partition import AGENT, Partition
from rp_agent.reporting.coordinator_link import CoordinatorLink, LinkHandler
from rp_agent.resource_manager.systems.find import allocation_of as pilot_allocation
from rp_agent.resource_manager.systems.find import as_plain
from rp_api import states
from rp_api.coordination.connect import agent_connection
from rp_api.coordination.contract import AgentConnection, AgentHandler, Update
from rp_api.description.partitions import partition_uid
from rp_api.errors import PlatformError, ResourceError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.system.processes import sweep
from rp_api.system.signals import name_of

if TYPE_CHECKING:
    from rp_agent.app_comm.channels import Channels

_log = logging.getLogger('radical.pilot.agent')

KILL_GRACE = 12.0
"""Seconds that an agent and its tasks have to end after a command."""

OTHERS = 30.0
"""Seconds to wait for the other first partitions after one of them is active."""

DRAIN = 0.25
"""Seconds to wait for the last messages of an agent that has died."""

SPEAKING = 2.0
"""Seconds to wait for the delivery of the last reports on partitions."""

NAME = 'keeper'
"""Uid of the reporter at the coordinator."""


class PilotSupervisor(LinkHandler):
    """The supervisor of a pilot: starts and watches the agents of its partitions, and ends the pilot."""

    def __init__(self, config: Mapping[str, Any], loop: Loop) -> None:
        self._config = config
        self._loop = loop
        self.pilot: str = config['pilot']
        self._lifetime = Lifetime(config)
        self._tracer = make_tracer(config, config['agent_uid'])
        self._tracer.record('hostname', self.pilot, msg=os.uname().nodename)
        self._allocation = pilot_allocation(config)
        self._divider = Divider(self._allocation)
        first = (self._divider.divide(config['partitions']) if isinstance(config['partitions'], int) else
                 self._divider.take_all(config['partitions']))
        self._channels = self._open_channels()
        self._partitions: dict[int, Partition] = {}
        self._wanted: list[tuple[int, Mapping[str, int]]] = []   # partitions that wait for the end of others
        self._awaited = set(range(len(first)))   # partitions that are not active; if empty, the pilot is active
        self._timer: Timer | None = None
        self._ending: tuple[str, str] | None = None
        self._by_signal = False
        self._link = CoordinatorLink(config, loop, lambda: bool(self._partitions), self.finish)
        self._link.connection.hold(True)   # tasks go to partitions
        self._link.connection.open(self)
        self._proxy_reporter = ProxyReporter(loop, config['coordination'], self._look_at_end)
        loop.call_later(self._lifetime.left, self.finish, states.DONE, self._lifetime.over)
        for number, parts in enumerate(first):
            self._start(number, parts)

    def finish(self, state: str, reason: str, *, by_user: bool = False) -> None:
        """End the pilot in a state, after its partitions, as a user wants it or not. Only the first call counts."""
        if self._ending:
            return
        self._ending = state, reason
        _log.info('the pilot ends as %s: %s', state, reason)
        self._wanted.clear()
        for partition in self._partitions.values():
            self._end(partition, state, reason, by_user=by_user)
        self._look_at_end()

    def told_to_end(self) -> None:
        """End the pilot because of a signal."""
        self._by_signal = self._ending is None
        self.finish(*self._lifetime.told_to_end())

    def warned(self, number: int) -> None:
        """Note a warning, and pass it on to the partitions."""
        _log.warning('a signal has come, and is passed on: %s', name_of(number))
        for partition in self._partitions.values():
            partition.warn(number)

    def close(self) -> None:
        """Kill all agents and release all resources."""
        for partition in self._partitions.values():
            partition.close()
        if self._channels is not None:
            self._channels.close()
        self._proxy_reporter.close()
        self._link.close()
        self._tracer.close()
        self._link.remove_endpoint()

    def _open_channels(self) -> Channels | None:
        """Open the channels of the application, which all partitions share."""
        if not self._config.get('app_comm'):
            return None
        from rp_agent.app_comm.channels import Channels  # few pilots have channels

        channels = Channels(self._config, self._loop, self._allocation,
                            lambda reason: self.finish(states.FAILED, reason))
        self._config = {**self._config, 'channels': channels.variables}
        return channels

    # messages of the coordinator

    def on_command(self, command: dict[str, Any]) -> None:
        name = command.get('cmd')
        self._tracer.record('cmd', self.pilot, msg=str(name))
        if name == 'cancel_pilot':
            self.finish(command.get('state', states.CANCELED), command['reason'], by_user=True)
        elif name == 'add_partition':
            if self._ending is None:   # else the client learns of the end of the pilot
                self._wanted.append((command['number'], command['size']))
                self._start_wanted()
        elif name == 'remove_partition':
            self._remove(command['number'], command['reason'])
        else:
            _log.error('command %r is unknown', name)

    def _remove(self, number: int, reason: str) -> None:
        waiting = [wanted for wanted in self._wanted if wanted[0] == number]
        if waiting:
            self._wanted.remove(waiting[0])
            self._speak(number, states.CANCELED, reason)
        elif number in self._partitions:
            self._end(self._partitions[number], states.CANCELED, reason, by_user=True)

    # partitions

    def _start_wanted(self) -> None:
        """Start the partitions that fit now; the others wait if a running partition is about to end, else they fail."""
        for number, size in list(self._wanted):
            try:
                parts = self._divider.take(size)
            except ResourceError as error:
                if not any(partition.told or partition.ending for partition in self._partitions.values()):
                    self._wanted.remove((number, size))
                    self._speak(number, states.FAILED, f'cannot be started: {error}')
            else:
                self._wanted.remove((number, size))
                self._start(number, parts)

    def _start(self, number: int, parts: Parts) -> None:
        allocation = allocation_of(self._allocation, parts)
        _log.info('partition %d gets %s', number, allocation)
        uid = partition_uid(self.pilot, number)
        sandbox_of_all = self._config['pilot_sandbox']
        config = {**self._config, 'pilot': uid, 'partition': number, 'partitions': 0,
                  'whole': {'pilot': self.pilot, 'sandbox': sandbox_of_all}, 'agent_uid': AGENT,
                  'pilot_sandbox': f'{sandbox_of_all}/{uid}', 'allocation': as_plain(allocation),
                  'output_staging': [], 'cleanup': False}   # the supervisor does both for the whole pilot
        if is_part(self._allocation, parts):
            config['gpus_of_node'] = parts[0].gpus
        self._tracer.record('partition_start', uid)
        try:
            self._partitions[number] = Partition(self._loop, number, parts, config, self._said, self._agent_ended)
        except (OSError, PlatformError) as error:
            self._divider.give_back(parts)
            self._speak(number, states.FAILED, f'could not be started: {error}')
            self._loop.call_soon(self._lost, number, states.FAILED, f'could not start partition {number}: {error}')

    def _said(self, partition: Partition, message: Message) -> None:
        if 'ready' in message:
            self._tracer.record('partition_ready', partition.uid)
            self._settled(partition.number)
        if 'ending' in message:
            state, reason = message['ending']
            partition.ending = state, reason

    def _end(self, partition: Partition, state: str, reason: str, *, by_user: bool) -> None:
        partition.tell(state, reason, by_user=by_user)
        self._loop.call_later(KILL_GRACE, self._kill, partition)

    def _kill(self, partition: Partition) -> None:
        if partition.code is None:
            _log.warning('the agent of %s is killed, as it does not end', partition.uid)
            partition.kill()

    def _agent_ended(self, partition: Partition) -> None:
        if partition.code == 0 and partition.ending:
            self._gone(partition)
        else:
            self._loop.call_later(DRAIN, self._died, partition)

    def _died(self, partition: Partition) -> None:
        """Report the death of an agent, whose last messages have arrived by now."""
        sweep({**belongs(self._config), 'RP_PARTITION_ID': str(partition.number)}, signal.SIGKILL)
        state, reason = partition.told or (states.FAILED, '')
        out, err = partition.output()
        words = (err or out).strip().splitlines()[-1:]
        how = f'its agent {partition.how()}' + ''.join(f': {line.removeprefix("rp-agent: ")}' for line in words)
        partition.ending = state, f'{reason}, and {how}' if reason else how
        directory = partition.directory
        self._speak(partition.number, *partition.ending, stdout=out, stderr=err, exception_detail=(
            f'see {directory}/{AGENT}.err and {directory}/{AGENT}.log' + (f'; its last lines:\n{err}' if err else '')))
        self._gone(partition)

    def _speak(self, number: int, state: str, reason: str, **info: str) -> None:
        """Report the final state of a partition without an agent."""
        sentence = f'{partition_uid(self.pilot, number)}: {reason}'
        _log.warning('%s: %s', state, sentence)
        error = {'exception': sentence, 'exception_detail': sentence} if state == states.FAILED else {}
        self._proxy_reporter.say(Update(partition_uid(self.pilot, number), state, {'reason': sentence} | error | info))

    def _gone(self, partition: Partition) -> None:
        """Free the resources of a partition that has ended."""
        del self._partitions[partition.number]
        if os.path.exists(f'{partition.directory}/{AGENT}.updates'):   # undelivered results always stay
            self._config = {**self._config, 'cleanup': False}
        self._divider.give_back(partition.parts)
        assert partition.ending is not None
        self._tracer.record('partition_stop', partition.uid, msg=partition.ending[0])
        self._lost(partition.number, *partition.ending)
        self._link.loss.left()
        self._start_wanted()

    def _lost(self, number: int, state: str, reason: str) -> None:
        """End the pilot if the end of a partition requires it."""
        living = [other for other in self._partitions.values() if not other.told and not other.ending]
        if state == states.DONE:
            self.finish(state, reason)
        elif state == states.FAILED and not living and not self._wanted:
            self.finish(state, f'has no partition left: {partition_uid(self.pilot, number)}: {reason}')
        self._settled(number)
        self._look_at_end()

    # start and end of the pilot

    def _settled(self, number: int) -> None:
        """Note that one of the first partitions is active or has ended."""
        if self._awaited:
            if self._timer is None:
                self._timer = self._loop.call_later(OTHERS, self._activate)
            self._awaited.discard(number)
            if not self._awaited:
                self._activate()

    def _activate(self) -> None:
        """Report the pilot as active; partitions that are still awaited may follow later."""
        if self._timer is not None:
            self._timer.cancel()
        self._awaited.clear()
        if self._ending is None:
            self._link.report_active({'resource_details': self._allocation.details(), 'hint': self._allocation.hint})
            self._tracer.flush()

    def _look_at_end(self) -> None:
        if self._ending is None or self._partitions or self._link.reports_end:
            return
        if self._proxy_reporter.speaking and not self._link.loss.lost:
            self._loop.call_later(SPEAKING, self._say_goodbye)
        else:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._link.reports_end:
            return
        assert self._ending is not None
        self._tracer.flush()
        self._link.report_end(self._config, *self._ending, {'resource_details': self._allocation.details()},
                              self._by_signal)


class ProxyHandler(AgentHandler):
    """The calls of a connection of a `ProxyReporter`."""

    def __init__(self, reporter: ProxyReporter, connection: AgentConnection) -> None:
        self._reporter = reporter
        self._connection = connection

    def on_refused(self, reason: str) -> None:
        self._reporter.said(self._connection)   # the partition is final already


class ProxyReporter:
    """The reporter of final states of partitions; `silent()` is called when all reports are delivered."""

    def __init__(self, loop: Loop, access: Mapping[str, Any], silent: Callable[[], object]) -> None:
        self._loop = loop
        self._access = access
        self._silent = silent
        self._speaking: set[AgentConnection] = set()

    @property
    def speaking(self) -> bool:
        """True if a report was not delivered yet."""
        return bool(self._speaking)

    def say(self, last: Update) -> None:
        """Report the final state of a partition."""
        connection = agent_connection(self._loop, self._access, last.uid, NAME)
        self._speaking.add(connection)
        connection.hold(True)
        connection.open(ProxyHandler(self, connection))
        connection.update_pilots([last])
        connection.when_settled(lambda: self._loop.call_soon(self.said, connection))

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._speaking):
            connection.close()
        self._speaking.clear()

    def said(self, connection: AgentConnection) -> None:
        """Close the connection of a partition whose state is delivered."""
        if connection in self._speaking:
            self._speaking.discard(connection)
            connection.close()
            if not self._speaking:
                self._silent()
