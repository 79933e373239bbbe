"""The public name of `rp_profiling.write.tracer`, as far as it is documented."""

from rp_profiling.write.tracer import Tracer as Tracer
