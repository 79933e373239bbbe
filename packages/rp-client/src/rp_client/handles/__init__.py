"""Handles: the objects that applications hold. Each is a record or a uid, and the owner that acts on it."""
