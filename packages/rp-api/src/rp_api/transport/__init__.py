"""Connections over ZeroMQ: sockets, CURVE keys, clocks and ends of peers, and messages that are resent (`resend`).

Imports `loop`, `wire` and `system`.
"""
