from typing import Any, Final

__pyx_capi__: Final[dict[str, Any]]
