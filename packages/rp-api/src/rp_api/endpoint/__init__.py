"""The endpoint of a pilot for processes on its nodes: the visitor's side, the messages, and the programs for tasks.

Imports the event loop, the transport and the wire format; imported by agents, tasks and applications.
"""
