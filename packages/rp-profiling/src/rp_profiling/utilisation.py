"""The public name of `rp_profiling.analyse.utilisation`, as far as it is documented."""

from rp_profiling.analyse.utilisation import Analysis as Analysis
