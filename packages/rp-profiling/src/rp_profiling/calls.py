"""The public names of `rp_profiling.read.calls` and `rp_profiling.analyse.calls`."""

from rp_profiling.analyse.calls import Use as Use
from rp_profiling.analyse.calls import concurrency as concurrency
from rp_profiling.analyse.calls import durations as durations
from rp_profiling.analyse.calls import figures as figures
from rp_profiling.analyse.calls import rate as rate
from rp_profiling.analyse.calls import use as use
from rp_profiling.read.calls import Calls as Calls
from rp_profiling.read.calls import read_calls as read_calls
