"""Stands in for Dragon: the few names that the runner uses."""
