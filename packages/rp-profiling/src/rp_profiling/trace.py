"""The public name of `rp_profiling.read.trace`, as far as it is documented."""

from rp_profiling.read.trace import Trace as Trace
from rp_profiling.read.trace import read_trace as read_trace
