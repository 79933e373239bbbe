"""The public names for reading a trace."""

from rp_profiling.read.session import read_trace as read_trace
from rp_profiling.read.trace import Trace as Trace
