"""Analyses a trace: durations, concurrency, rates, and what became of the core-hours.

Imports `read` and the catalogue.
"""
