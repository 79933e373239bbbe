"""The command line: the program `rp`, which other distributions extend with sub-commands."""
