"""Tests with a real Grid Engine."""
