"""The resource managers of this distribution, one module per batch system; `find` loads them by name.

Imports the modules of `resource_manager`.
"""
