"""The supervisor of a pilot's service tasks: it watches them, starts them again, and tells their users where they are.

Rules of this file:

- A service is an ordinary task of the pipeline. The supervisor sees its states, and its end before the output stagers
  do; a task that is started again goes back to the gate, and its later states are not reported.
- The registry decides what users get. `_publish` passes each change of it to the gate and to the application.
- A service ends for good when its policy allows no more restarts, when it is cancelled, and with the pilot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rp_agent.components.isolation import unless
from rp_agent.components.stage import Flow, Owner, Stage, Tasks
from rp_agent.prerequisites.gate import PILOT, SERVICE, Gate, Need
from rp_agent.services.instance import ServiceTask, free_port
from rp_agent.services.probes import can_repeat, put_aside, signs
from rp_agent.services.registry import Registry, ServiceInstance, variable
from rp_agent.services.watch import Watch
from rp_agent.task import VARIABLES, AgentTask, has_needs
from rp_api import states
from rp_api.description.task import TaskDescription
from rp_api.errors import PlatformError, sentence
from rp_api.failures.kinds import DESCRIPTION
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Helpers
from rp_api.reasons.kinds import ATTEMPT
from rp_api.reasons.wait import WAITS_FOR, wait

if TYPE_CHECKING:
    from rp_agent.services.router import Routers

_log = logging.getLogger('radical.pilot.agent.services')

PORT = 'RP_SERVICE_PORT'
"""The variable with the port on which a service listens."""

OF_PILOT = Need(PILOT, 'services')

_URGENT = (1 << 31) - 1
"""The priority of a service that is started again: it comes before the tasks that use it."""


class Supervisor(Stage):
    """The service tasks of a pilot, and the registry of their instances.

    `open_endpoint` opens the endpoint at which services report that they are ready, `address` returns the IP address of
    this host that routers listen at.
    """

    order = 1

    def __init__(self, loop: Loop, gate: Gate, flow: Flow, owner: Owner, open_endpoint: Callable[[], object],
                 address: Callable[[], str]) -> None:
        self._loop = loop
        self._gate = gate
        self._flow = flow
        self._owner = owner
        self._open_endpoint = open_endpoint
        self._address = address
        self._late: list[Tasks] = []   # placed, while their services have ended
        self._helpers = Helpers(loop)   # of its own: a look may wait for a host that does not answer
        self._tasks: dict[str, ServiceTask] = {}
        self._of_pilot: frozenset[str] = frozenset()
        self._awaited: set[str] = set()
        """Services of the pilot that were not ready yet."""
        self._stopping = ''
        self.registry = Registry()
        self.registry.on_change(self._publish)
        self._routers: Routers | None = None

    # services

    def add(self, tasks: Iterable[AgentTask]) -> None:
        """Take charge of service tasks that are about to enter the pipeline; those that are not valid fail."""
        for task in tasks:
            try:
                TaskDescription(task.description).check()
                service = ServiceTask(task)
                if service.may_signal:
                    self._open_endpoint()
            except Exception as error:   # whatever a client has sent concerns this task alone
                task.fail(sentence(error), f'{task.uid} is no valid service', DESCRIPTION)
                continue
            self._tasks[task.uid] = service
            for name in service.names:
                if not self.registry.healthy(name):
                    self._gate.withdraw(Need(SERVICE, name), 'is starting')

    def of_pilot(self, uids: Iterable[str]) -> None:
        """Hold all other tasks until these services are ready; if one of them ends, so does the pilot."""
        self._of_pilot = own = frozenset(uids)
        self._awaited = set(own)
        self._gate.require(OF_PILOT, lambda task: task.uid not in own)
        self._gate.expect(OF_PILOT, 'are starting')

    @property
    def expects(self) -> bool:
        """True if a service runs that is not ready yet, or one is started again after a pause."""
        return any(service.pause is not None or (service.watch is not None and service.ready_since is None)
                   for service in self._tasks.values())

    def register(self, uid: str, info: str) -> None:
        """Add a service outside of the pilot, or change its information; raise ValueError if they are no texts."""
        if not isinstance(uid, str) or not uid or not isinstance(info, str):
            raise ValueError(f'a service has a uid and information, which are texts, not {uid!r} and {info!r}')
        self.registry.put(ServiceInstance(uid, uid, info=info))

    def signal(self, uid: str, info: str = '', name: str = '') -> None:
        """Take the report of a running service that it is ready, with its information, and its name if it is new."""
        service = self._tasks.get(uid)
        if service is None or service.watch is None:
            raise ValueError(f'{uid} is no service of this pilot that runs')
        service.name = name or service.name
        service.watch.signalled(info)

    def stop(self, reason: str) -> None:
        """Start and watch nothing more, as the pilot ends."""
        self._stopping = reason
        for service in list(self._tasks.values()):
            self._unwatch(service)
            self._end_pause(service, reason)

    def close(self) -> None:
        """Release all resources."""
        self._helpers.close(0)
        if self._routers is not None:
            self._routers.close()

    # calls from the pipeline

    def visible(self, tasks: Sequence[AgentTask], state: str) -> Sequence[AgentTask]:
        """Follow the states of services; return the tasks whose new state is reported."""
        found = [(task, self._tasks.get(task.uid)) for task in tasks]
        return [task for task, service in found if service is None or self._follow(service, state)]

    def placed(self, tasks: Tasks) -> Tasks:
        """Put tasks back to the gate whose services have ended since they left it; return the others."""
        late = [task for task in tasks if has_needs(task) and not self._gate.recheck(task)]
        if not late:
            return tasks
        self._late.append(late)
        if len(self._late) == 1:   # the next tasks get their places, and may come here within this call
            while self._late:
                self._flow.place_again(self._late[0])
                del self._late[0]
        return [task for task in tasks if task not in late]

    def executed(self, tasks: Tasks) -> Tasks:
        """Return the tasks that do not start again; the others keep their place, which users would take otherwise."""
        return unless(tasks, self._comes_back, 'ending its run')

    def _comes_back(self, task: AgentTask) -> bool:
        """Handle the end of a run; return whether the supervisor keeps the task, to run it again."""
        service = self._tasks.get(task.uid)
        if service is None:
            return False
        ready = 0.0 if service.ready_since is None else time.monotonic() - service.ready_since
        self._unwatch(service)
        ended = task.target_state == states.CANCELED and not service.given_up   # by its timeout
        if task.cancelled or self._stopping or ended:
            return False
        end = service.end()
        delay = service.restarts.next(ready)
        if delay is None:
            self._conclude(service, end)
            return False
        self._pause(service, end, delay)
        return True

    def left(self, tasks: Tasks) -> Tasks:
        """Handle the end of services."""
        return unless(tasks, self._leave, 'leaving')

    def _leave(self, task: AgentTask) -> None:
        service = self._tasks.pop(task.uid, None)
        if service is not None:
            self._unwatch(service)
            self._gone(service)

    def cancel(self, uids: Iterable[str]) -> None:
        """End those of these tasks that wait for their next start."""
        for uid in uids:
            if uid in self._tasks:
                self._end_pause(self._tasks[uid], 'cancelled before its next start')

    # one run

    def _follow(self, service: ServiceTask, state: str) -> bool:
        """Handle a state of a service; return whether it is reported."""
        if state == states.AGENT_EXECUTING_PENDING:
            self._equip(service)
        shown = not service.executed
        if state == states.AGENT_EXECUTING:
            service.executed = True
            self._begin(service)
        return shown

    def _equip(self, service: ServiceTask) -> None:
        """Give a placed service its port."""
        if service.wanted_port is None:
            return
        if service.wanted_port == 0:
            used = {each.port for each in self._tasks.values() if each is not service}
            service.port = free_port(used, service.proven.get(service.host, 0))
        variables = service.task.extra.get(VARIABLES, {})
        service.task.extra[VARIABLES] = {**variables, PORT: str(service.port)}

    def _begin(self, service: ServiceTask) -> None:
        """Watch a run that starts."""
        self._unwatch(service)   # that of a run which a lost node has ended
        if self._stopping:
            return
        probe = service.probe
        service.watch = Watch(
            self._loop, self._helpers.run, service.look(), probe, limit=service.limit,
            liveness=service.liveness and can_repeat(probe),
            ready=partial(self._ready, service), given_up=partial(self._give_up, service))
        if service.router is not None:
            self._loop.call_soon(self._route, service, service.router)

    def _route(self, service: ServiceTask, settings: Mapping[str, Any]) -> None:
        """Open the router of a service, whose address is what users get."""
        if service.watch is None or self.registry.endpoint(service.name):
            return
        if self._routers is None:
            from rp_agent.services.router import Routers

            self._routers = Routers(self._loop, self.registry, self._helpers.run, self._address(),
                                    self._router_failed)
        try:
            address = self._routers.open(service.name, retry_unsafe=settings['retry_unsafe'])
        except (PlatformError, OSError) as error:
            self._give_up(service, sentence(error))
        else:
            self.registry.set_endpoint(service.name, service.info_at(*address))

    def _router_failed(self, name: str, reason: str) -> None:
        """End the instances of a service that has lost its router; if they start again, they get another one."""
        self.registry.set_endpoint(name, '')
        for service in self._of_name(name):
            if service.watch is not None:
                service.watch.stop()
                self._give_up(service, reason)

    def _of_name(self, name: str) -> list[ServiceTask]:
        return [each for each in self._tasks.values() if each.name == name]

    def _ready(self, service: ServiceTask, found: str) -> None:
        service.ready_since = time.monotonic()
        service.proven = {service.host: service.port}
        instance = ServiceInstance(service.uid, service.name, service.host, service.port, service.info(found))
        _log.info('%s is ready: %s', service.uid, instance.info)
        self.registry.put(instance)
        self._started(service.uid)

    def _started(self, uid: str) -> None:
        """Release the tasks of the application when the last service of the pilot is ready, or has ended well."""
        if uid in self._awaited:
            self._awaited.remove(uid)
            if not self._awaited:
                self._gate.provide(OF_PILOT)

    def _is_ready(self, uid: str) -> bool:
        instance = self.registry.instance(uid)
        return instance is not None and instance.healthy

    def _give_up(self, service: ServiceTask, reason: str) -> None:
        _log.warning('%s is ended: %s', service.uid, reason)
        service.given_up = reason
        self.registry.withdraw(service.uid)
        self._flow.end_runs([service.task])

    def _unwatch(self, service: ServiceTask) -> None:
        """End the watch over a run that has ended, and withdraw the instance."""
        if service.watch is not None:
            service.watch.stop()
            service.watch = None
        self.registry.withdraw(service.uid)

    # restarts

    def _pause(self, service: ServiceTask, end: str, delay: float) -> None:
        """Wait before the next start."""
        restarts = service.restarts
        self._tell(service, None, text := f'restart {restarts.count} of {restarts.most} in {delay:g} s: {end}')
        _log.warning('%s: %s', service.uid, text)
        for name in service.names:
            if not self.registry.healthy(name):
                self._gate.withdraw(Need(SERVICE, name), 'is started again')
        service.pause = self._loop.call_later(delay, self._prepare, service)

    def _prepare(self, service: ServiceTask) -> None:
        """Remove what the probe would take for signs of the next run, then start it."""
        self._helpers.run(partial(put_aside, signs(service.probe, service.target)),
                          lambda _: self._again(service), lambda error: self._cannot_start(service, error))

    def _again(self, service: ServiceTask) -> None:
        if service.pause is not None:
            service.pause = service.ready_since = None
            service.given_up = ''
            service.task.description['priority'] = _URGENT
            self._flow.start_again(service.task)

    def _cannot_start(self, service: ServiceTask, error: BaseException) -> None:
        if service.pause is not None:
            service.pause = None
            self._conclude(service, f'it cannot be started again: {sentence(error)}')
            self._stage_output(service.task)

    def _end_pause(self, service: ServiceTask, reason: str) -> None:
        if service.pause is not None:
            service.pause.cancel()
            service.pause = None
            service.task.target_state = states.CANCELED
            service.task.exception = reason
            self._stage_output(service.task)

    # the end of a service

    def _stage_output(self, task: AgentTask) -> None:
        """Pass on a task that came back and does not run again."""
        self._flow.release([task])
        self._flow.stage_output([task])

    def _conclude(self, service: ServiceTask, end: str) -> None:
        """Set the outcome of a service that is not started again."""
        never_ready = service.ready_since is None and 'runs' not in service.probe
        if service.has_failed or service.restarts.most or never_ready:
            after = f' after {service.restarts.count} restarts' if service.restarts.count else ''
            service.fail(f'service {service.name} has failed{after}: {end}')

    def _gone(self, service: ServiceTask) -> None:
        """Tell the users of a service that this instance does not come back."""
        task = service.task
        reason = task.exception if task.target_state == states.FAILED else None
        reason = reason or f'service {service.name} has ended as {task.target_state}'
        detail = task.exception_detail or reason
        self.registry.remove(service.uid)
        if self._routers is not None and not self._of_name(service.name):
            self._routers.remove(service.name)
            self.registry.set_endpoint(service.name, '')
        for name in service.names:
            if not any(name in each.names for each in self._tasks.values()) and not self.registry.healthy(name):
                self._gate.fail(Need(SERVICE, name), reason, detail)
        if task.target_state == states.DONE:
            self._started(service.uid)
        elif service.uid in self._of_pilot and not self._stopping:
            _log.error('%s: %s', service.uid, detail)
            self._owner.finish(states.FAILED, f'has lost its service {service.uid}: {reason}')

    # users

    def _publish(self, name: str) -> None:
        """Tell the users of a service what the registry has for them."""
        services = self._of_name(name)
        if not services and not self.registry.instances(name):   # it has ended
            return
        self._offer(name, self._has(name, services), partial(self.registry.info, name))
        for service in services:
            uid = service.uid
            ready = self._is_ready(uid) and self._has(name, services)
            if uid != name:
                self._offer(uid, ready, partial(self._info_of, uid))
            if ready and (told := self._info_of(uid)) != service.told:
                self._tell(service, told)

    def _tell(self, service: ServiceTask, info: str | None, waits_for: str = '') -> None:
        """Report the information on a service to the application, unless it is one of the pilot itself."""
        service.told = info
        if service.uid not in self._of_pilot:
            self._owner.report(service.task, {'info': info, WAITS_FOR: wait(ATTEMPT, waits_for)})

    def _has(self, name: str, services: Sequence[ServiceTask]) -> bool:
        """Return whether users of a service can be served: it has an instance, and its router if it has one."""
        routed = any(service.router is not None for service in services)
        return bool(self.registry.healthy(name)) and (not routed or bool(self.registry.endpoint(name)))

    def _info_of(self, uid: str, known: str | None = None) -> str:
        """Return the information on one instance: its own, or the endpoint of its service."""
        instance = self.registry.instance(uid)
        assert instance is not None
        return self.registry.endpoint(instance.name) or instance.info

    def _offer(self, name: str, ready: bool, info: Callable[[str | None], str | None]) -> None:
        """Release or hold tasks that need a service or an instance; `info` gets what a task knows already."""
        def variables(task: AgentTask) -> Mapping[str, str]:
            key = variable(name)
            return {key: info(task.extra.get(VARIABLES, {}).get(key)) or ''}

        if ready:
            self._gate.provide(Need(SERVICE, name), variables)
        else:
            self._gate.withdraw(Need(SERVICE, name), 'is not ready')
