"""Names of the components of an agent and of the places where their instances run.

The layout of the instances is in `layout`, which only the agent loads.
"""

from __future__ import annotations

from rp_api import constants as c

STAGING_INPUT = c.AGENT_STAGING_INPUT_COMPONENT
SCHEDULING = c.AGENT_SCHEDULING_COMPONENT
EXECUTING = c.AGENT_EXECUTING_COMPONENT
STAGING_OUTPUT = c.AGENT_STAGING_OUTPUT_COMPONENT

COMPONENTS = (STAGING_INPUT, SCHEDULING, EXECUTING, STAGING_OUTPUT)

INLINE = ''
"""The host of instances in Agent_0's process."""

ANYWHERE = -1
"""The node of instances that are not bound to one node."""


def sub_agent_on(position: int) -> str:
    """Return the name of the sub-agent on the node at a position."""
    return f'agent_n.{position:04d}'
