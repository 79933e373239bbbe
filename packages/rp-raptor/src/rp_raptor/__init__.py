"""RAPTOR: masters and workers that run Python function calls by the million.

The package `master` routes calls to workers. A worker is a manager process (`worker`) and its ranks (`rank`), processes
that run one call at a time. Applications send calls to masters through `client`. `wire` defines the messages between
them and the payloads of calls and results.
"""

__version__ = '2.0.0'
