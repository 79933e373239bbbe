"""Stage 2: the script `bootstrap_2.sh`, which starts agents and sub-agents in the environment of stage 0.

`/bin/sh bootstrap_2.sh agent_0` runs the agent with the configuration `agent_0.cfg`; the name `agent_0.node` runs it on
a node to which `agent_0` has moved it (see `rp_agent.nodes.relocation`). The name
`pilot.0000.0001/agent_0` runs the agent of that partition with the configuration in its directory. `agent_n CONFIG`,
optionally with the position of the node, runs a sub-agent on a node (see `rp_agent.nodes.node_agent`). Any other name
runs a sub-agent that reads its configuration from standard input.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from shlex import join, quote

from rp_agent.bootstrap.environment import exports
from rp_api.system import private
from rp_api.system.host import python_program
from rp_api.system.shell import opening

FILE = 'bootstrap_2.sh'

_SCRIPT = """{opening}
# Starts an agent or a sub-agent of this pilot: bootstrap_2.sh NAME. Made by stage 1 of the bootstrap.
{exports}{commands}
sandbox={sandbox}
case $1 in
    agent_n) shift; exec {sub_agent} "$@" ;;
    agent_* | */agent_*) exec {agent} "$sandbox/$1.cfg" ;;
    *) exec {sub_agent} ;;
esac
"""


def script(sandbox: str, environ: Mapping[str, str], commands: Sequence[str], shell: str = '') -> str:
    """Return the text of the script for this interpreter; it runs `commands` before each agent and sub-agent.

    `shell` is the shell of the platform definition, empty for the default. Without commands, the script stays in
    `/bin/sh`.
    """
    return _SCRIPT.format(
        opening='\n'.join(opening(shell)) if commands else '#!/bin/sh', exports=exports(environ),
        commands='\n'.join(commands), sandbox=quote(sandbox),
        agent=join(python_program('rp_agent.cli')), sub_agent=join(python_program('rp_agent.nodes.sub_agent')))


def write(sandbox: str, environ: Mapping[str, str], commands: Sequence[str] = (), shell: str = '') -> str:
    """Write the script into the sandbox, private because variables may hold secrets; return its path."""
    path = os.path.join(sandbox, FILE)
    private.write_file(path, script(sandbox, environ, commands, shell).encode(errors='surrogateescape'), 0o700)
    return path
