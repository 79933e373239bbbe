"""The public function of `rp_profiling.read.profile`."""

from rp_profiling.read.profile import read_profile as read_profile
