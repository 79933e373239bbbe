"""The settings of stage 0, as shell assignments in the file `pilot.sh`.

Values are quoted for the shell. Only paths may contain variables of the machine's environment, which are expanded
there: `$SCRATCH/ve`, `${HOME}/ve`, `~/ve`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import quote
from typing import Any

from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_client import __version__

PRE_BOOTSTRAP_TIMEOUT = 600
"""Seconds in which the commands of `pre_bootstrap_0` must end together."""

BUNDLE = 'bootstrap_0.tar'
"""Name of the bundle in the sandbox."""

MADE = ('private', 'create', 'update', 'recreate')
"""Modes in which a missing virtual environment is made."""

_VARIABLE = re.compile(r'\$(?:(\w+)|\{(\w+)\})')
_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_]*')
_VERSION = re.compile(r'@v?([0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc|\.post|\.dev)[0-9]+)?)')
_HOST = r'(\[[0-9a-fA-F:]+\]|[^:/@,]+)'
_HUB = re.compile(rf'tcp://{_HOST}:([0-9]+)')
_MONGODB = re.compile(rf'mongodb://(?:[^/@?]*@)?{_HOST}(?::([0-9]+))?(?:[/?].*)?')
_TLS = re.compile(r'[?&](?:tls|ssl)=true', re.IGNORECASE)

_SECRET = ('RADICAL_PILOT_DBURL',)
"""Variables that may contain passwords."""


def shell_text(config: Mapping[str, Any], platform: ResourceConfig, environ: Mapping[str, str], prefix: str,
               executable: str) -> str:
    """Return the lines of assignments; the last one marks the file as complete."""
    check(platform)
    like_client = platform.virtenv_mode == 'local'
    values = {
        'rp_pilot': quote(config['pilot']),
        'rp_session': quote(config['session']),
        'rp_profile': 'yes' if config['profile'] else '',
        'rp_mode': platform.virtenv_mode,
        'rp_virtenv': quote(prefix) if like_client else expandable(_virtenv(config, platform)),
        'rp_dist': platform.python_dist,
        'rp_interpreter': expandable(platform.python_interpreter),
        'rp_client_python': quote(executable) if like_client else '',
        'rp_client_path': quote(environ.get('PYTHONPATH', '')) if like_client else '',
        'rp_requirements': quote(' '.join(requirements(platform))),
        'rp_bundle': BUNDLE if platform.rp_version == 'local' else '',
        'rp_tree': quote(f'{config["session_sandbox"]}/rp_install') if needs_tree(platform) else '',
        **_tunnel(config, platform),
        'rp_patience': str(PRE_BOOTSTRAP_TIMEOUT),
        'rp_pre_count': str(len(platform.pre_bootstrap_0)),
        **{f'rp_pre_{number}': quote(line) for number, line in enumerate(platform.pre_bootstrap_0, 1)},
    }
    assignments = [f'{name}={value}' for name, value in values.items()]
    return '\n'.join([*_needs(platform.virtenv, platform.python_interpreter), *assignments, *_exports(environ),
                      'rp_complete=yes', ''])


def check(platform: ResourceConfig) -> None:
    """Raise PlatformError for platform settings that are not valid for any pilot."""
    requirements(platform)
    if platform.virtenv_mode == 'use' and not platform.virtenv:
        raise PlatformError(f'virtenv_mode of {platform.label or "the platform"} is use, but virtenv, which names the '
                            'environment, is not set')
    if platform.forward_tunnel_endpoint == 'BIND_ADDRESS':
        raise PlatformError("forward_tunnel_endpoint 'BIND_ADDRESS' is not supported: name a host that ssh reaches "
                            'from the nodes, and that reaches the client')


def requirements(platform: ResourceConfig) -> list[str]:
    """Return the requirements to install on the platform; raise PlatformError for a version that is not valid."""
    version = platform.rp_version
    if version == 'local':
        return ['rp-agent']   # with the other wheels of the bundle
    exact = _VERSION.fullmatch(version)
    if exact:
        wanted = f'=={exact[1]}'
    elif version == 'installed':   # a new environment gets the client's version
        wanted = f'=={__version__}'
    elif version == 'release':
        wanted = f'>={_major()},<{_major() + 1}'
    else:
        raise PlatformError(f"rp_version of {platform.label or 'the platform'} is {version!r}, allowed are "
                            "'installed', 'local' (the client's bundle, see `rp bundle`), 'release', and "
                            "'@<version>'; an agent of a branch or a commit goes into a bundle")
    return [f'rp-agent{wanted}', f'rp-raptor{wanted}']


def needs_tree(platform: ResourceConfig) -> bool:
    """Return whether the agent is installed outside of a virtual environment that must not be changed."""
    return platform.rp_version != 'installed' and platform.virtenv_mode not in MADE


def needs_program(platform: ResourceConfig) -> bool:
    """Return whether stage 0 makes an environment or installs packages."""
    return platform.virtenv_mode in MADE or needs_tree(platform)


def expandable(path: str) -> str:
    """Return a path as a shell word in which only variables are expanded."""
    if path == '~' or path.startswith('~/'):
        path = f'$HOME{path[1:]}'
    words, end = [], 0
    for match in _VARIABLE.finditer(path):
        words += [path[end:match.start()] and quote(path[end:match.start()]), f'"${{{match[1] or match[2]}}}"']
        end = match.end()
    return ''.join([*words, path[end:] and quote(path[end:])])


def _needs(*paths: str) -> list[str]:
    """Return commands by which stage 0 checks that the variables in these paths are set."""
    return [f'rp_need {name} "${{{name}:-}}" {quote(path)}' for path in paths
            for name in (match[1] or match[2] for match in _VARIABLE.finditer(path))]


def _virtenv(config: Mapping[str, Any], platform: ResourceConfig) -> str:
    """Return the path of the virtual environment; empty in mode none."""
    mode = platform.virtenv_mode
    if mode == 'none':
        return ''
    if mode == 'private' and not platform.virtenv:
        return f'{config["pilot_sandbox"]}/virtenv'
    return platform.virtenv or f'{config["resource_sandbox"]}/ve.{config["resource"]}.{__version__}'


def _tunnel(config: Mapping[str, Any], platform: ResourceConfig) -> dict[str, str]:
    """Return the settings of the ssh tunnel to the coordinator, if there is one."""
    through = platform.forward_tunnel_endpoint
    if not through:
        return {'rp_tunnel': ''}
    host, _, port = through.partition(':')
    return {'rp_tunnel': quote(host), 'rp_tunnel_port': quote(port) if port else '',
            'rp_tunnel_to': quote(_tunnel_end(config['coordination'], through))}


def _tunnel_end(access: Mapping[str, Any], through: str) -> str:
    """Return host and port of the coordinator, the end of the tunnel."""
    if access.get('backend') == 'mongodb':
        server = _MONGODB.fullmatch(access['url'])
        if server is None or _TLS.search(access['url']):
            raise PlatformError(f'forward_tunnel_endpoint is {through!r}, but a tunnel can only lead to one MongoDB '
                                'server without TLS, at mongodb://<host>:<port>, and the URL of this session names '
                                f'{access["endpoint"]}')
        return f'{server[1]}:{server[2] or 27017}'
    hub = _HUB.fullmatch(str(access.get('endpoint', '')))
    if hub is None:
        raise PlatformError(f'forward_tunnel_endpoint is {through!r}, but a tunnel can only lead to a hub at '
                            f"tcp://<host>:<port>, not to {access.get('endpoint')}: open the session with "
                            "cfg={'hub': {'listen': 'tcp://<interface>'}}")
    return f'{hub[1]}:{hub[2]}'


def _exports(environ: Mapping[str, str]) -> list[str]:
    """Return the exports of the client's RADICAL variables."""
    return [f'export {name}={quote(value)}' for name, value in sorted(environ.items())
            if name.startswith('RADICAL_') and name not in _SECRET and _NAME.fullmatch(name)]


def _major() -> int:
    return int(__version__.partition('.')[0])
