"""Connections over ZeroMQ: sockets, CURVE keys, clock offsets, watching of peers, and resending of messages.

Imports `loop`, `wire` and `system`.
"""
