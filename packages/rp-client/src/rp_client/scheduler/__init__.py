"""Task schedulers bind tasks to pilots."""
