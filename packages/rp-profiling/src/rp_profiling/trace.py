"""The public names of `rp_profiling.read.trace`."""

from rp_profiling.read.trace import Trace as Trace
from rp_profiling.read.trace import read_trace as read_trace
