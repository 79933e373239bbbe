"""Launchers start the agents of pilots, watch them and end them: `local` on this machine, `batch` as jobs.

`batch.systems` writes job scripts. Imports `bootstrap`.
"""
