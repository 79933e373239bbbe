"""The names of `radical.pilot.utils` for type checkers, as in `radical/pilot/_modules.py`."""

from radical.pilot.utils import misc as misc
from radical.pilot.utils import prof_utils as prof_utils
from radical.pilot.utils import serializer as serializer
from radical.pilot.utils import session as session
from radical.pilot.utils.misc import *
from radical.pilot.utils.prof_utils import *
from radical.pilot.utils.serializer import *
from radical.pilot.utils.session import *
