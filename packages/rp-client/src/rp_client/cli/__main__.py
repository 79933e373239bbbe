"""`python -m rp_client.cli`: the same as the program `rp`."""

import sys

from rp_client.cli.program import main

if __name__ == '__main__':
    sys.exit(main())
