"""`radical.pilot.staging_directives`: what directives say, once they are expanded."""

from rp_api.staging.directive import Directive, describe, expand

__all__ = ['Directive', 'describe', 'expand']
