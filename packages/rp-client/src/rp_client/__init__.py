"""The client: sessions, the managers of pilots and tasks, and the objects that they return.

Applications reach these names through `import radical.pilot as rp`. The modules are imported one by one; this one
holds the version alone, so that importing it costs nothing.
"""

__version__ = '2.0.0'
