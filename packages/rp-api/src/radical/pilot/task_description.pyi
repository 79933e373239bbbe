"""The names of `radical.pilot.task_description` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.constants import AGENT_SERVICE as AGENT_SERVICE
from rp_api.constants import RAPTOR_MASTER as RAPTOR_MASTER
from rp_api.constants import RAPTOR_WORKER as RAPTOR_WORKER
from rp_api.constants import TASK_EVAL as TASK_EVAL
from rp_api.constants import TASK_EXEC as TASK_EXEC
from rp_api.constants import TASK_EXECUTABLE as TASK_EXECUTABLE
from rp_api.constants import TASK_FUNC as TASK_FUNC
from rp_api.constants import TASK_FUNCTION as TASK_FUNCTION
from rp_api.constants import TASK_METH as TASK_METH
from rp_api.constants import TASK_METHOD as TASK_METHOD
from rp_api.constants import TASK_PROC as TASK_PROC
from rp_api.constants import TASK_SERVICE as TASK_SERVICE
from rp_api.constants import TASK_SHELL as TASK_SHELL
from rp_api.description.task import *
