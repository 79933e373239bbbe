"""The owner of a session: runs its pilots and tasks, with or without an application that holds handles of them."""
