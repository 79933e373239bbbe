"""Stage 0 and what follows from it; a package, so that its conftest has a name of its own."""
