"""The public functions of `rp_profiling.analyse.durations`."""

from rp_profiling.analyse.durations import concurrency as concurrency
from rp_profiling.analyse.durations import durations as durations
from rp_profiling.analyse.durations import polars_table as polars_table
from rp_profiling.analyse.durations import table as table
