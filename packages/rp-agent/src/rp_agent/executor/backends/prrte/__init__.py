"""PRRTE DVMs: how they are started, and the tasks that are launched into them."""
