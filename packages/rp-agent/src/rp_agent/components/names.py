"""The components of an agent by name, and the places where their instances may be.

Which instances there are, and where, is for the agent to know (see `layout`); this much every sub-agent has to.
"""

from __future__ import annotations

from rp_api import constants as c

STAGING_INPUT = c.AGENT_STAGING_INPUT_COMPONENT
SCHEDULING = c.AGENT_SCHEDULING_COMPONENT
EXECUTING = c.AGENT_EXECUTING_COMPONENT
STAGING_OUTPUT = c.AGENT_STAGING_OUTPUT_COMPONENT

COMPONENTS = (STAGING_INPUT, SCHEDULING, EXECUTING, STAGING_OUTPUT)

INLINE = ''
"""The host of instances that live in Agent_0's process."""

ANYWHERE = -1
"""The node of instances that start tasks on whatever nodes the others do not."""


def sub_agent_on(position: int) -> str:
    """The name of the sub-agent on the node at that position."""
    return f'agent_n.{position:04d}'
