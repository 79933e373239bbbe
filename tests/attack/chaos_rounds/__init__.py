"""Chaos: sessions whose processes are killed, stopped and continued at random, and proof that all promises hold."""
