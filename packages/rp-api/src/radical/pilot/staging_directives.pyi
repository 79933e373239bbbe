"""The names of `radical.pilot.staging_directives` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.staging.directive import Directive as Directive
from rp_api.staging.directive import describe as describe
from rp_api.staging.directive import expand as expand
from rp_api.staging.directive import expand as expand_staging_directives

__all__ = ['Directive', 'describe', 'expand', 'expand_staging_directives']
