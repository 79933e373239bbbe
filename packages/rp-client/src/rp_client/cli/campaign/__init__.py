"""Commands that show what a session does and why not, and those by which its owner acts on tasks and pilots."""
