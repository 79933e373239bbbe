"""Access to the coordinator through the tunnel of stage 0: a socket on this node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_MONGODB = re.compile(r'(mongodb://(?:[^/@?]*@)?)([^/?]*)/?([^?]*)\??(.*)', re.DOTALL)


def through_tunnel(access: Mapping[str, Any], socket: str) -> dict[str, Any]:
    """Return the access parameters with the endpoint replaced by the path of a socket."""
    if access.get('backend') != 'mongodb':
        return {**access, 'endpoint': f'ipc://{socket}'}
    return {**access, 'url': _mongodb(access['url'], socket)}


def _mongodb(url: str, socket: str) -> str:
    """Return the URL for this server only: the tunnel does not reach other members of its replica set."""
    match = _MONGODB.fullmatch(url)
    assert match is not None   # the client has validated it
    begin, _, database, options = match.groups()
    given = [option for option in options.split('&') if option and not option.lower().startswith(
        ('replicaset=', 'directconnection='))]
    return f'{begin}{quote(socket, safe="")}/{database}?{"&".join([*given, "directConnection=true"])}'
