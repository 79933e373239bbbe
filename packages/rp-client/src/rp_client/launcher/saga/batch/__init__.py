"""What each batch system says about jobs, and how it says so: one module for each, pure functions of texts."""
