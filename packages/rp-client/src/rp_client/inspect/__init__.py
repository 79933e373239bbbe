"""Looks at the tasks of sessions: their records in files, and tables of them."""
