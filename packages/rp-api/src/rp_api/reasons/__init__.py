"""Reasons: why a task or pilot waits, has failed or is slow, with what to do about it.

Pure functions over a `View`, which a running application and the files of a session provide alike. It may import
`rp_api.description`, `rp_api.failures`, `rp_api.raptor_link` and what these may import; agents import only `kinds`,
`places` and `wait`.
"""
