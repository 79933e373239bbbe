"""`python -m rp_agent` is `rp-agent`."""

import sys

from rp_agent.cli import main

sys.exit(main())
