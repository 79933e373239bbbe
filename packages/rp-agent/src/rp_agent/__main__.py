"""Entry point of `python -m rp_agent`, which is the program `rp-agent`."""

import sys

from rp_agent.cli import main

sys.exit(main())
