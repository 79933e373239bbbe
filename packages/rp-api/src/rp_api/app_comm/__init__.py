"""Channels between the tasks of an application (`PilotDescription.app_comm`): the protocol, and its use by tasks.

It imports `transport`, `wire`, `system` and the form of access data of `raptor_link`.
"""
