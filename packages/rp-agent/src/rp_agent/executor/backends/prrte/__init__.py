"""PRRTE backend: the start of DVMs, and the tasks that are launched into them."""
