"""`rp hub` with sessions that the program in RP_FAULT_MATRIX_HUB serves: `unreliable_service.py start ...`."""

from __future__ import annotations

import json
import os
import sys

from rp_api.coordination.service import main, served
from rp_client.cli import hub

if __name__ == '__main__':
    served.python_program = lambda _: json.loads(os.environ['RP_FAULT_MATRIX_HUB'])
    main.python_program = lambda _: [sys.executable, __file__]
    sys.exit(hub.hub(sys.argv[1:]) if sys.argv[1:] else main.main())
