"""Schedulers place tasks on the cores and GPUs of a pilot."""
