"""The client: sessions, pilot and task managers, and the pilots and tasks that they return.

Applications use these names through `import radical.pilot as rp`. This module holds only the version, so that importing
it is cheap.
"""

__version__ = '2.0.0'
