"""The public name of `rp_profiling.read.profile`, as far as it is documented."""

from rp_profiling.read.profile import read_profile as read_profile
