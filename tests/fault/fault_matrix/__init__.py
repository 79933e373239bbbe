"""The fault matrix: sessions that something happens to at a random moment, and proof that nothing is lost by it."""
