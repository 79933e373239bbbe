"""RAPTOR: masters and workers that run Python function calls by the million.

A master (`master`, its machinery is in `core`) deals calls out to workers (`router`). A worker is a manager
(`manager`) with ranks (`rank`), processes that run one call at a time. Applications make calls at masters with `stream`
and `futures`. `protocol` has what masters say to workers and applications, `rank_link` what managers say to ranks,
`payload` what is in calls and results.
"""

__version__ = '2.0.0'
