"""Reads the profiles of a session into one trace, on one clock.

Imports `write` for the format of profiles.
"""
