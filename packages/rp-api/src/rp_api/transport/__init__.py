"""Connections over ZeroMQ: sockets, CURVE keys, clocks of peers, and messages that are resent (`resend`).

Imports `loop`, `wire` and `system`.
"""
