"""Streams of items between one process and many others, over a tree of connections with relays.

Items are numbered, and resent when a connection breaks. Imports `transport`.
"""
