"""The agent: places, launches and watches tasks on the nodes of a pilot.

It runs in the pilot's job and exchanges only messages with the client. This module holds the version and imports
nothing, so that a process loads only the modules that it uses.
"""

__version__ = '2.0.0'
