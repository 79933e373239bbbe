from typing import Any

from rp_api.by_value.snapshot import Snapshot

def unchanged(snapshot: Snapshot, root: Any) -> bool: ...
