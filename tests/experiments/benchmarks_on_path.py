"""Imported first by tests of benchmarks/experiments: its package is found beside the benchmarks, in no distribution."""

from __future__ import annotations

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'

if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))
