"""Commands on the tasks, calls and pilots of a session: what they are, why they wait or fail, and their end."""
