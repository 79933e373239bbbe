"""Connections of clients and agents to the hub of their session; they resend messages that were not acknowledged.

Imports nothing of the hub.
"""
