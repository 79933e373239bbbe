"""The public class of `rp_profiling.write.tracer`."""

from rp_profiling.write.tracer import Tracer as Tracer
