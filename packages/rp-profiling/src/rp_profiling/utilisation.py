"""The public class of `rp_profiling.analyse.utilisation`."""

from rp_profiling.analyse.utilisation import Analysis as Analysis
