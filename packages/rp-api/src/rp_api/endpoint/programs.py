"""The programs by which tasks, of any language, call the agent of their pilot at its endpoint."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rp_api.endpoint.visitor import PilotEndpoint
from rp_api.errors import sentence


def control() -> int:
    """Call a procedure of a pilot, and print its result: `radical-pilot-control SANDBOX COMMAND [NAME=VALUE...]`."""
    parser = argparse.ArgumentParser('radical-pilot-control', description='Calls a procedure of a pilot, and prints '
                                     'its result as JSON, or OK if it has none. In a task, the program is $RP_CTRL.')
    parser.add_argument('sandbox', help='the sandbox of the pilot; in a task, $RP_PILOT_SANDBOX')
    parser.add_argument('command', help='the procedure, such as submit_tasks or cancel_tasks')
    parser.add_argument('argument', nargs='*', help='an argument as NAME=VALUE, or VALUE alone: JSON, or any text')
    given = parser.parse_args()
    args, kwargs = arguments(given.argument)
    return _called(parser.prog, lambda: _show(_call(given.sandbox, given.command, args, kwargs)))


def service_signal() -> int:
    """Report that a service is ready: `radical-pilot-service-signal [--uid UID] [--name NAME] [--info TEXT]`."""
    parser = argparse.ArgumentParser('radical-pilot-service-signal', description='Reports to the pilot that a service '
                                     'is ready, from a process of its task.')
    parser.add_argument('--uid', default=os.environ.get('RP_TASK_ID', ''), help='the task; default: $RP_TASK_ID')
    parser.add_argument('--name', help='the name of the service, if it is not that in its description')
    parser.add_argument('--info', default='', help='what tasks get as RP_INFO_<NAME>, such as an address')
    given = parser.parse_args()
    kwargs = {'uid': given.uid, 'info': given.info} | ({'name': given.name} if given.name else {})
    return _called(parser.prog, lambda: _call(None, 'service_signal', [], kwargs))


def arguments(texts: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments from `VALUE` and `NAME=VALUE` texts."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition('=')
        if equals and name.isidentifier():
            kwargs[name] = _value(value)
        else:
            args.append(_value(text))
    return args, kwargs


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _call(sandbox: str | None, command: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if sandbox is not None and not os.path.isdir(sandbox):
        raise RuntimeError(f'{sandbox} is not the sandbox of a pilot on this host')
    with PilotEndpoint(sandbox) as endpoint:
        return endpoint.call(command, *args, **kwargs)


def _show(value: Any) -> None:
    print('OK' if value is None else json.dumps(value, default=repr))


def _called(program: str, call: Callable[[], object]) -> int:
    try:
        call()
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        text = str(error) if type(error) is RuntimeError else sentence(error)
        print(f'{program}: {text}', file=sys.stderr)
        return 1
    return 0


main = control
