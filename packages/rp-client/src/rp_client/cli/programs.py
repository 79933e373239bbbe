"""The programs `radical-pilot-*` of RADICAL-Pilot 1: each is a call of a command or function of ours.

A program runs `main`, which finds in a table what to do by the name under which it was started.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rp_api import __version__
from rp_client.cli import commands, program

_AGE = {'m': 1 / 1440, 'h': 1 / 24, 'd': 1.0, 'w': 7.0, 'M': 30.0, 'y': 365.0}
"""Days by the suffix of an age."""

_REQUIREMENTS = [f'{name}=={__version__}' for name in ('rp-agent', 'rp-raptor')]
"""The packages of a pilot."""


def _version(arguments: list[str]) -> int:
    """Show the version, or with -v those of all parts."""
    parser = _parser('version', _version)
    parser.add_argument('-v', action='store_true', help='the versions of all parts')
    if parser.parse_args(arguments).v:
        return program.run(['--version'])
    print(__version__)
    return 0


def _resources(arguments: list[str]) -> int:
    """List the labels of all platforms."""
    _parser('resources', _resources).parse_args(arguments)
    from rp_api.platforms.load import list_platforms

    print(*list_platforms(), sep='\n')
    return 0


def _fetch_profiles(arguments: list[str]) -> int:
    """Copy the traces of a session from its pilots."""
    return _fetch(_parser('fetch-profiles', _fetch_profiles), 'fetch_profiles', arguments)


def _fetch_logfiles(arguments: list[str]) -> int:
    """Copy the logs of a session from its pilots."""
    return _fetch(_parser('fetch-logfiles', _fetch_logfiles), 'fetch_logfiles', arguments)


def _fetch(parser: argparse.ArgumentParser, function: str, arguments: list[str]) -> int:
    parser.add_argument('sid', metavar='SESSION', help='the uid of a session, or its directory')
    parser.add_argument('-c', '--src', help="the directory of the session's directory (default: the working directory)")
    parser.add_argument('-t', '--tgt', help='the directory for the copies (default: that of -c)')
    parser.add_argument('-a', '--access', metavar='URL', help='a host that can access the files, as sftp://HOST/')
    parser.add_argument('-s', '--skip', action='store_true', help='keep existing files')
    options = parser.parse_args(arguments)
    from rp_client import recorded

    for path in getattr(recorded, function)(options.sid, options.src, options.tgt, options.access, options.skip,
                                            fetch_client=options.tgt is not None):
        print(path)
    return 0


def _fetch_json(arguments: list[str]) -> int:
    """Write the data of a session to SESSION.json in the working directory."""
    parser = _parser('fetch-json', _fetch_json)
    parser.add_argument('sid', metavar='SESSION', help='the uid of a session, or its directory')
    options = parser.parse_args(arguments)
    from rp_api.analytics.session import fetch_json

    print(fetch_json(options.sid))
    return 0


def _close_session(arguments: list[str]) -> int:
    """List, export or purge sessions."""
    parser = _parser('close-session', _close_session)
    parser.add_argument('-m', '--mode', default='list', choices=('list', 'purge', 'export', 'dump'),
                        help='list (default), purge, export to SESSION.json, or dump to the terminal')
    parser.add_argument('-s', '--session', metavar='SESSION', help='the uid of the session')
    parser.add_argument('-a', '--age', type=_days, metavar='AGE', help='purge closed sessions older than this, such as '
                        '3d; suffixes: m, h, d (default), w, M (30 days), y')
    parser.add_argument('-d', '--dburl', metavar='URL', help='a MongoDB with sessions')
    options = parser.parse_args(arguments)
    sid, where = options.session, ['--dburl', options.dburl] if options.dburl else []
    if options.age is not None and (sid is not None or options.mode != 'purge'):
        parser.error('-a is only allowed with -m purge, and without -s')
    if options.mode == 'list' and sid is None:
        return _rp('session', 'list', *where)
    if options.mode == 'list':
        return _rp('session', 'show', sid, *where)
    if options.mode == 'purge' and sid is None:
        age = ['--older-than', str(options.age)] if options.age is not None else []
        return _rp('session', 'purge', '--all-closed', *age, *where)
    if sid is None:
        parser.error(f'the mode {options.mode} needs -s SESSION')
    if options.mode == 'purge':
        return _rp('session', 'purge', sid, *where)
    return _rp('session', 'export', sid, *(['-o', f'{sid}.json'] if options.mode == 'export' else []), *where)


def _stats(arguments: list[str]) -> int:
    """Show figures, or the pilots and tasks, of sessions."""
    parser = _parser('stats', _stats)
    parser.add_argument('-s', '--session', required=True, metavar='SESSION[,SESSION ...]', help='the uids of sessions')
    parser.add_argument('-m', '--mode', default='tree', metavar='MODE[,MODE ...]',
                        help='tree (default): pilots and tasks; dump: all data; stat: figures; plot: pictures')
    options = parser.parse_args(arguments)
    runs = {'tree': lambda sid: _rp('session', 'show', sid, '--tasks'),
            'dump': lambda sid: _rp('session', 'export', sid),
            'stat': lambda sid: _rp('trace', sid, 'stats'), 'plot': lambda sid: _rp('trace', sid, 'plot')}
    modes = options.mode.split(',')
    for mode in modes:
        if mode not in runs:
            parser.error(f'mode {mode!r} is unknown, allowed are: {", ".join(runs)}')
    return max(runs[mode](sid) for mode in modes for sid in options.session.split(','))


def _ve(arguments: list[str]) -> int:
    """Make a virtual environment."""
    parser = _parser('ve', _ve)
    parser.add_argument('directory', metavar='DIR', help='its directory')
    directory = parser.parse_args(arguments).directory
    return subprocess.run([sys.executable, '-m', 'venv', directory], check=False).returncode


def _create_static_ve(arguments: list[str]) -> int:
    """Make an environment with packages, for example one that pilots or tasks use."""
    parser = _parser('create-static-ve', _create_static_ve)
    parser.add_argument('-p', dest='prefix', required=True, metavar='DIR', help='its directory')
    parser.add_argument('-t', dest='kind', default='venv', choices=('venv', 'virtualenv', 'conda', 'anaconda'),
                        help='its type (default: venv)')
    parser.add_argument('-v', dest='version', metavar='X.Y', help='the version of Python (default: as here)')
    parser.add_argument('-m', dest='modules', default='', metavar='NAME[,NAME ...]', help='packages, as for pip')
    parser.add_argument('-d', dest='defaults', action='store_true', help='the packages of a pilot: rp-agent, rp-raptor')
    parser.add_argument('-P', dest='pre_exec', action='append', default=[], metavar='COMMAND',
                        help='a shell command that is run before; can be given several times')
    parser.add_argument('-T', dest='dump', metavar='FILE', help='the file for the variables of the active environment')
    options = parser.parse_args(arguments)
    packages = [*(_REQUIREMENTS if options.defaults else []), *filter(None, options.modules.split(','))]
    return subprocess.run(['bash', '-c', '\n'.join(_script(options, packages))], check=False).returncode


def _script(options: argparse.Namespace, packages: Sequence[str]) -> list[str]:
    """Return the lines of the script that makes an environment."""
    prefix = shlex.quote(os.path.abspath(options.prefix))
    python = f'python{options.version}' if options.version else shlex.quote(sys.executable)
    if options.kind in ('conda', 'anaconda'):
        version = options.version or '{}.{}'.format(*sys.version_info)
        make = [f'conda create -y -p {prefix} python={version}', 'eval "$(conda shell.bash hook)"',
                f'conda activate {prefix}']
    else:
        make = [f'{python} -m venv {prefix}', f'. {prefix}/bin/activate']
    install = [f'python -m pip install {shlex.join(packages)}'] if packages else []
    dump = [f'env | sort > {shlex.quote(os.path.abspath(options.dump))}'] if options.dump else []
    return ['set -e', *options.pre_exec, *make, *install, *dump]


def _days(text: str) -> float:
    """Return the days of an age such as `3d`."""
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _AGE else (text, 'd')
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(f'{text!r} is not a number with one of the suffixes {", ".join(_AGE)}')
    return int(number) * _AGE[unit]


def _rp(*words: str) -> int:
    """Run a command of `rp`."""
    return program.run(list(words))


def _parser(name: str, run: Callable[[list[str]], int]) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f'radical-pilot-{name}', description=run.__doc__)


PROGRAMS: dict[str, commands.Run] = {
    'radical-pilot-close-session': _close_session,
    'radical-pilot-create-static-ve': _create_static_ve,
    'radical-pilot-fetch-json': _fetch_json,
    'radical-pilot-fetch-logfiles': _fetch_logfiles,
    'radical-pilot-fetch-profiles': _fetch_profiles,
    'radical-pilot-resources': _resources,
    'radical-pilot-stats': _stats,
    'radical-pilot-ve': _ve,
    'radical-pilot-version': _version,
}
"""Functions by the name of the program; pyproject.toml has the same names."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program that the process was started as, and return its exit code.

    Args:
        arguments: The name of the program and its arguments; default: those of the process.
    """
    name, *rest = sys.argv if arguments is None else arguments
    name = Path(name).name
    return program.guarded(name, lambda: PROGRAMS[name](rest))
