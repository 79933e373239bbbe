"""Takes the place of `rp-agent agent_0.cfg` where a local launcher starts it: goes through stage 0 instead.

`through_stage_0.py VALUES agent_0.cfg`, where VALUES (JSON) are fields of the platform's definition.
"""

import json
import os
import sys
from pathlib import Path

from rp_api.platforms.definition import ResourceConfig
from rp_client.bootstrap import Client, prepare


def main() -> None:
    """Become stage 0, as a batch job would."""
    values, path = sys.argv[1:]
    config = json.loads(Path(path).read_text())
    del config['launcher']   # a job is not noted
    bootstrap = prepare(config, ResourceConfig(config['platform'] | json.loads(values)), Client.here())
    sandbox = Path(config['pilot_sandbox'])
    for name, content in bootstrap.files.items():
        (sandbox / name).write_bytes(content)
    os.execve(bootstrap.command[0], bootstrap.command, {**os.environ, **bootstrap.environment})


main()
