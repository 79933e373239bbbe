"""The resource managers of this distribution, `find` loads them by name.

Imports the modules of `resource_manager`.
"""
