"""The shell script that checks a platform: it prints a line for each finding, and changes nothing.

A line is `RP-CHECK <verdict> <name> <words>`, to tell it from the output of login shells and modules. The last line is
`RP-CHECK end`; without it, the shell has ended early.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote

from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.systems import LAUNCH_METHODS
from rp_client.bootstrap.prepare import Client
from rp_client.bootstrap.settings import MADE, needs_tree
from rp_client.launcher.batch.job import partition_and_qos
from rp_client.launcher.batch.systems.base import BatchSystem
from rp_client.launcher.batch.systems.registry import batch_system

MARK = 'RP-CHECK'

_LOG = '"$rp_log"'

_FIRST_LINE = '$(sed -n "s/^/: /; 1p" "$rp_log")'

PYTHONS = ('python3', 'python3.13', 'python3.12', 'python3.11', 'python3.10', 'python')

# a hub sends a greeting to each connection
_CONNECT = ('import sys, socket; sys.exit(not socket.create_connection((sys.argv[1], int(sys.argv[2])), 10).recv(1) '
            'and "the connection was closed at once")')

_LEAST = '3.10'

_IS_NEW = 'import sys; print(sys.version.split()[0]); sys.exit(sys.version_info < (3, 10))'

_HAS_AGENT = '-c \'from importlib.metadata import version; print(version("rp-agent"))\' > "$rp_log" 2>&1'

_BEGIN = f'''
rp_say() {{ printf '{MARK} %s %s %s\\n' "$1" "$2" "$(printf '%s' "$3" | tr '\\n\\r\\t' '   ')"; }}
rp_log=$(mktemp) || exit 1
trap 'rm -f "$rp_log"' EXIT
rp_say ok host "$(uname -n)"
'''

# checks the last directory of the path that exists
_WRITABLE = '''while test -n "$rp_dir" && ! test -e "$rp_dir"; do rp_dir=${rp_dir%/*}; done
    rp_dir=${rp_dir:-/}
    if test -d "$rp_dir" && test -w "$rp_dir"
    then rp_say ok workdir "$rp_dir, $(df -Pk "$rp_dir" | awk 'NR == 2 {print int($4 / 1024)}') MB free"
    else rp_say bad workdir "$rp_dir cannot be written to"; fi'''

# as login shells do
_FIND_MODULE = '''for rp_file in /etc/profile /etc/profile.d/modules.sh /etc/profile.d/lmod.sh; do
    if ! command -v module > /dev/null 2>&1 && test -r "$rp_file"; then . "$rp_file" > /dev/null 2>&1; fi
done'''

# some versions of module print an error and exit with 0
_NO_COMPLAINT = '''! grep -q -E 'ERROR|Unable to locate|following module\\(s\\) are unknown' "$rp_log"'''


def script(config: ResourceConfig, scheme: str, client: Client, back: str = '') -> str:
    """Return the script for a platform with the batch system of that scheme (empty: none).

    `back` is the client's endpoint for a connection from the platform, `tcp://HOST:PORT`; empty without one.
    """
    return '\n'.join([_BEGIN, *_batch(config, scheme), *_workdir(config), *_commands(config),
                      *_python(config, client), *_way_back(back), *_launchers(config), f'echo {MARK} end', ''])


def _batch(config: ResourceConfig, scheme: str) -> Iterator[str]:
    if not scheme:
        return
    system = batch_system(f'{scheme}://')
    submit = system.submitter.split()[0]
    yield _either(f'command -v {submit} > "$rp_log" 2>&1', 'batch', '$(cat "$rp_log")',
                  f'there is no {submit}: {system.name} is not installed here, or not on PATH')
    partition, qos = partition_and_qos(config.default_queue, config)
    if partition and system.queue_command:
        yield _queue(partition, system)
    if qos:
        yield _qos(qos, system)


def _queue(partition: str, system: BatchSystem) -> str:
    """Return the check that the queue exists, and accepts and starts jobs."""
    name = _inside(partition)
    pattern = system.queue_stopped
    stopped = f"""$(printf '%s\\n' "$rp_queue" | grep -E {quote(pattern)})""" if pattern else ''
    missing = _say('bad', 'queue', f'default_queue {name} is not there{_FIRST_LINE}')
    if system.qos_command:
        missing = (f'if {_prints(system.qos_command, partition)}; then '
                   + _say('bad', 'queue', f'default_queue {name} is no partition, but a QOS: queue_type must be qos')
                   + f'; else {missing}; fi')
    return (f'rp_queue=$({system.queue_command.format(quote(partition))} 2> {_LOG}); rp_stopped={stopped}\n'
            f'if test -z "$rp_queue"; then {missing}\n'
            f'elif test -n "$rp_stopped"; then {_say("bad", "queue", f"{name} does not start jobs: $rp_stopped")}\n'
            f'else {_say("ok", "queue", f"{name} is there")}; fi')


def _qos(qos: str, system: BatchSystem) -> str:
    """Return the check that the QOS exists."""
    name = _inside(qos)
    if not system.qos_command:
        return _say('bad', 'qos', f'{_inside(system.name)} has none: {name}')
    missing = _say('bad', 'qos', f'the QOS {name} of default_queue is not there{_FIRST_LINE}')
    wrong = _say('bad', 'qos', f'default_queue {name} is no QOS, but a partition: queue_type must be partition')
    return (f'if {_prints(system.qos_command, qos, _LOG)}; then {_say("ok", "qos", f"{name} is there")}\n'
            f'elif {_prints(system.queue_command, qos)}; then {wrong}; else {missing}; fi')


def _prints(command: str, name: str, log: str = '/dev/null') -> str:
    return f'test -n "$({command.format(quote(name))} 2> {log})"'


def _workdir(config: ResourceConfig) -> Iterator[str]:
    base = config.default_remote_workdir
    if '%(' in base:
        yield _say('note', 'workdir', f'{_inside(base)} depends on the pilot description')
    elif base:
        yield f'rp_dir={_with_variables(base)}'
        wrong = _say('bad', 'workdir', f'default_remote_workdir {_inside(base)} is no absolute path here: $rp_dir')
        yield f'case $rp_dir in /*) {_WRITABLE};; *) {wrong};; esac'


def _commands(config: ResourceConfig) -> Iterator[str]:
    lines = [*config.pre_bootstrap_0, *config.pre_bootstrap_1]
    if any(map(_is_module, lines)):
        yield _FIND_MODULE
    for line in lines:
        done = f'eval {quote(line)} > "$rp_log" 2>&1'
        words = _inside(line)
        yield _either(f'{done} && {_NO_COMPLAINT}' if _is_module(line) else done, 'command', words,
                      f'{words} failed: $(tail -n 3 "$rp_log")')


def _is_module(line: str) -> bool:
    return line.split()[:1] in (['module'], ['ml'])


def _python(config: ResourceConfig, client: Client) -> Iterator[str]:
    """Yield the checks of the Python that stage 0 uses, and of the agent in it, if it has to be installed."""
    mode = config.virtenv_mode
    virtenv = {'local': client.prefix, 'none': ''}.get(mode, config.virtenv)
    if mode in MADE:
        yield _find_python(config, client)
        if virtenv and '%(' not in virtenv:
            yield _made(mode, virtenv)
        return
    if virtenv:
        yield f'rp_python={_with_variables(virtenv)}/bin/python'
        yield _either('test -x "$rp_python"', 'python', '$rp_python', '$rp_python is not there')
    else:
        yield _find_python(config, client)
    if not needs_tree(config):
        path = quote(client.environ.get('PYTHONPATH', '')) if mode == 'local' else ''
        yield _either(f'PYTHONPATH={path} "$rp_python" {_HAS_AGENT}', 'agent', 'rp-agent $(cat "$rp_log")',
                      'the agent cannot be used: $(tail -n 1 "$rp_log")')


def _find_python(config: ResourceConfig, client: Client) -> str:
    """Return the check for the Python that the platform names, or the first that is new enough."""
    own = [client.executable] if config.virtenv_mode == 'local' else []
    names = [config.python_interpreter] if config.python_interpreter else [*own, *PYTHONS]
    words = ' '.join(map(_with_variables, names))
    return (f'rp_python=; for rp_name in {words}; do\n'
            f'if test -z "$rp_python" && "$rp_name" -c {quote(_IS_NEW)} > "$rp_log" 2>&1\n'
            'then rp_python=$rp_name; rp_version=$(cat "$rp_log"); fi; done\n'
            + _either('test -n "$rp_python"', 'python', '$rp_python is Python $rp_version',
                      f'{_inside(names[0])} is no Python {_LEAST} or later: $(tail -n 1 "$rp_log")'))


def _made(mode: str, virtenv: str) -> str:
    """Return the check of a virtual environment that pilots make."""
    where, words = _with_variables(virtenv), _inside(virtenv)
    note = _say('note', 'virtenv', f'{words} will be made by the first pilot')
    if mode == 'private':
        return f'if test -e {where}; then {_say("bad", "virtenv", f"{words} is there already")}; else {note}; fi'
    found = _either(f'{where}/bin/python {_HAS_AGENT}', 'virtenv', f'{words} has rp-agent $(cat "$rp_log")',
                    f'{words} is there, without rp-agent: $(tail -n 1 "$rp_log")')
    return f'if test -e {where}; then {found}; else {note}; fi'


def _way_back(endpoint: str) -> Iterator[str]:
    """Yield the check that an agent reaches a hub on this host; a missing Python was reported before."""
    if not endpoint:
        return
    host, _, port = endpoint.removeprefix('tcp://').rpartition(':')
    yield ('if "$rp_python" -c "" > /dev/null 2>&1; then '
           + _either(f'"$rp_python" -c {quote(_CONNECT)} {quote(host)} {quote(port)} > "$rp_log" 2>&1', 'back',
                     f'$(uname -n) reaches this host at {_inside(endpoint)}',
                     f'$(uname -n) does not reach a hub on this host at {_inside(endpoint)}: $(tail -n 1 "$rp_log"). '
                     'Set RADICAL_PILOT_PROXY_HOST to an address of this host that it reaches'
                     '${SSH_CONNECTION:+ (this connection comes from ${SSH_CONNECTION%% *})}, '
                     'or forward_tunnel_endpoint of the platform') + '; fi')


def _launchers(config: ResourceConfig) -> Iterator[str]:
    """Yield the checks of launch methods; only if none is usable it is an error, as some are on compute nodes only."""
    yield 'rp_found=no'
    for name in config.launch_methods['order']:
        programs = LAUNCH_METHODS[name].programs if name in LAUNCH_METHODS else ()
        if not programs:
            yield f'rp_found=yes; {_say("ok" if name == "FORK" else "note", "launch", f"{name} needs no program")}'
            continue
        yield (f'if rp_path=$(for rp_name in {" ".join(programs)}; do command -v "$rp_name" && break; done) && '
               f'test -n "$rp_path"; then rp_found=yes; {_say("ok", "launch", f"{name}: $rp_path")}\n'
               f'else {_say("note", "launch", f"{name}: there is no {programs[0]} here")}; fi')
    yield f'test "$rp_found" = yes || {_say("bad", "launch", "none of the launch methods can be used here")}'


def _either(condition: str, name: str, good: str, bad: str) -> str:
    """Return shell code that reports one of two findings."""
    return f'if {condition}; then {_say("ok", name, good)}; else {_say("bad", name, bad)}; fi'


def _say(verdict: str, name: str, words: str) -> str:
    """Return shell code that reports a finding; the shell expands variables and commands in `words`."""
    return f'rp_say {verdict} {name} "{words}"'


def _inside(text: str) -> str:
    """Return the text escaped for use in double quotes."""
    return re.sub(r'([\\"$`])', r'\\\1', text)


def _with_variables(text: str) -> str:
    """Return the text as a shell word in which only `$NAME`, `${NAME}` and a leading `~/` are expanded."""
    text = f'$HOME{text[1:]}' if text.startswith('~/') else text
    parts = re.split(r'(\$\w+|\$\{\w+\})', text)
    return '"' + ''.join(part if index % 2 else _inside(part) for index, part in enumerate(parts)) + '"'
