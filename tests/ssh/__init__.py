"""Tests with hosts that are reached by ssh."""
