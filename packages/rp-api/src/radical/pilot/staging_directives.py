"""`radical.pilot.staging_directives`: expanded staging directives."""

from rp_api.staging.directive import Directive, describe, expand

__all__ = ['Directive', 'describe', 'expand']
