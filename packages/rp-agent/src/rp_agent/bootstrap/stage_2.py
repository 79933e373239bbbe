"""Stage 2: the script `bootstrap_2.sh`, which starts agents and sub-agents in the environment that stage 0 has made.

`/bin/sh bootstrap_2.sh agent_0` becomes the agent with the configuration `agent_0.cfg`, and with the name
`pilot.0000.0001/agent_0` the one of that partition, whose configuration is in that directory. With `agent_n CONFIG`,
and perhaps the position of its node, it becomes a sub-agent on a node (see `rp_agent.nodes.node_agent`), with
another name a sub-agent that reads its configuration from its standard input.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from shlex import join, quote

from rp_agent.bootstrap.environment import exports
from rp_api.system import private
from rp_api.system.host import python_program

FILE = 'bootstrap_2.sh'

_SCRIPT = """#!/bin/sh
# Starts an agent or a sub-agent of this pilot: bootstrap_2.sh NAME. Made by stage 1 of the bootstrap.
{exports}{commands}
sandbox={sandbox}
case $1 in
    agent_n) shift; exec {sub_agent} "$@" ;;
    agent_* | */agent_*) exec {agent} "$sandbox/$1.cfg" ;;
    *) exec {sub_agent} ;;
esac
"""


def script(sandbox: str, environ: Mapping[str, str], commands: Sequence[str]) -> str:
    """The text of the script, for the interpreter that runs this; `commands` are run before agents and sub-agents."""
    return _SCRIPT.format(
        exports=exports(environ), commands='\n'.join(commands), sandbox=quote(sandbox),
        agent=join(python_program('rp_agent.cli')), sub_agent=join(python_program('rp_agent.nodes.sub_agent')))


def write(sandbox: str, environ: Mapping[str, str], commands: Sequence[str] = ()) -> str:
    """Write it into the sandbox, for its owner only, as variables may hold secrets; gives its path."""
    path = os.path.join(sandbox, FILE)
    private.write_file(path, script(sandbox, environ, commands).encode(errors='surrogateescape'), 0o700)
    return path
