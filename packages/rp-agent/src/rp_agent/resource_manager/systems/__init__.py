"""The resource managers of this distribution, a module for each batch system; `find` knows them by name.

Imports the modules of `resource_manager`.
"""
