"""Runs the program `rp`: `python -m rp_client.cli`."""

import sys

from rp_client.cli.program import main

if __name__ == '__main__':
    sys.exit(main())
