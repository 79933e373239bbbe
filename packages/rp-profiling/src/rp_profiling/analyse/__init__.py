"""Analyses a trace: durations, concurrency, rates, and the use of core-hours.

Imports `read` and the catalogue.
"""
