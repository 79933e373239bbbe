"""How the coordinator is reached when stage 0 has made a tunnel: at a socket of this node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_MONGODB = re.compile(r'(mongodb://(?:[^/@?]*@)?)([^/?]*)/?([^?]*)\??(.*)', re.DOTALL)


def through_tunnel(access: Mapping[str, Any], socket: str) -> dict[str, Any]:
    """The access to a coordinator for an agent that reaches it at the path of a socket, and nowhere else."""
    if access.get('backend') != 'mongodb':
        return {**access, 'endpoint': f'ipc://{socket}'}
    return {**access, 'url': _mongodb(access['url'], socket)}


def _mongodb(url: str, socket: str) -> str:
    """The URL of the same server; other members of its replica set, which it tells of, are not reached."""
    match = _MONGODB.fullmatch(url)
    assert match is not None   # the client has looked at it
    begin, _, database, options = match.groups()
    given = [option for option in options.split('&') if option and not option.lower().startswith(
        ('replicaset=', 'directconnection='))]
    return f'{begin}{quote(socket, safe="")}/{database}?{"&".join([*given, "directConnection=true"])}'
