"""One suite for all backends of coordination; a package, so that its conftest has a name of its own."""
