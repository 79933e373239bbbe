"""The command line: the program `rp`, to which other distributions add sub-commands."""
