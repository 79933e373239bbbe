"""The agent: places, launches and watches tasks on the nodes of a pilot.

It runs where the pilot runs and meets the client only in messages. The modules are imported one by one; this one
holds the version alone, so that importing it costs nothing.
"""

__version__ = '2.0.0'
