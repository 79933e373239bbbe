"""`rp hub` with sessions that the program in RP_FAULT_MATRIX_HUB serves: `unreliable_service.py start ...`."""

from __future__ import annotations

import json
import os
import sys

from rp_api.coordination.service import main, served
from rp_client.cli import hub

if __name__ == '__main__':
    program: list[str] = json.loads(os.environ['RP_FAULT_MATRIX_HUB'])
    served.python_program = lambda module: program  # type: ignore[attr-defined]
    main.python_program = lambda module: [sys.executable, __file__]  # type: ignore[attr-defined]
    sys.exit(hub.hub(sys.argv[1:]) if sys.argv[1:] else main.main())
