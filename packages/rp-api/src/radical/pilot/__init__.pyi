"""The names of `radical.pilot` for type checkers and editors, the same as in the table of `__init__.py`."""

from radical.pilot import aio as aio
from radical.pilot import constants as constants
from radical.pilot import pilot as pilot
from radical.pilot import pilot_description as pilot_description
from radical.pilot import pilot_manager as pilot_manager
from radical.pilot import pytask as pytask
from radical.pilot import raptor as raptor
from radical.pilot import raptor_tasks as raptor_tasks
from radical.pilot import resource_config as resource_config
from radical.pilot import session as session
from radical.pilot import staging_directives as staging_directives
from radical.pilot import states as states
from radical.pilot import task as task
from radical.pilot import task_description as task_description
from radical.pilot import task_manager as task_manager
from radical.pilot import utils as utils
from rp_api import __version__ as __version__
from rp_api.app_comm.channel import AppPublisher as AppPublisher
from rp_api.app_comm.channel import AppQueue as AppQueue
from rp_api.app_comm.channel import AppSubscriber as AppSubscriber
from rp_api.constants import *
from rp_api.description.pilot import PilotDescription as PilotDescription
from rp_api.description.python_task import PythonTask as PythonTask
from rp_api.description.python_task import pythontask as pythontask
from rp_api.description.task import Cache as Cache
from rp_api.description.task import TaskDescription as TaskDescription
from rp_api.endpoint.visitor import PilotEndpoint as PilotEndpoint
from rp_api.errors import NoPilot as NoPilot
from rp_api.failures.task_error import TaskCanceledError as TaskCanceledError
from rp_api.failures.task_error import TaskError as TaskError
from rp_api.failures.task_error import TaskLostError as TaskLostError
from rp_api.failures.task_error import TaskMemoryError as TaskMemoryError
from rp_api.failures.task_error import TaskTimeoutError as TaskTimeoutError
from rp_api.platforms.definition import ResourceConfig as ResourceConfig
from rp_api.resources import RO as RO
from rp_api.resources import Node as Node
from rp_api.resources import NodeList as NodeList
from rp_api.resources import NumaDomain as NumaDomain
from rp_api.resources import NumaDomainMap as NumaDomainMap
from rp_api.resources import NumaNode as NumaNode
from rp_api.resources import NumaNodeList as NumaNodeList
from rp_api.resources import RankRequirements as RankRequirements
from rp_api.resources import ResourceOccupation as ResourceOccupation
from rp_api.resources import Slot as Slot
from rp_api.states import AGENT_EXECUTING as AGENT_EXECUTING
from rp_api.states import AGENT_EXECUTING_PENDING as AGENT_EXECUTING_PENDING
from rp_api.states import AGENT_SCHEDULING as AGENT_SCHEDULING
from rp_api.states import AGENT_SCHEDULING_PENDING as AGENT_SCHEDULING_PENDING
from rp_api.states import AGENT_STAGING_INPUT as AGENT_STAGING_INPUT
from rp_api.states import AGENT_STAGING_INPUT_PENDING as AGENT_STAGING_INPUT_PENDING
from rp_api.states import AGENT_STAGING_OUTPUT as AGENT_STAGING_OUTPUT
from rp_api.states import AGENT_STAGING_OUTPUT_PENDING as AGENT_STAGING_OUTPUT_PENDING
from rp_api.states import CANCELED as CANCELED
from rp_api.states import DONE as DONE
from rp_api.states import FAILED as FAILED
from rp_api.states import FINAL as FINAL
from rp_api.states import INITIAL as INITIAL
from rp_api.states import NEW as NEW
from rp_api.states import PMGR_ACTIVE as PMGR_ACTIVE
from rp_api.states import PMGR_ACTIVE_PENDING as PMGR_ACTIVE_PENDING
from rp_api.states import PMGR_LAUNCHING as PMGR_LAUNCHING
from rp_api.states import PMGR_LAUNCHING_PENDING as PMGR_LAUNCHING_PENDING
from rp_api.states import TMGR_SCHEDULING as TMGR_SCHEDULING
from rp_api.states import TMGR_SCHEDULING_PENDING as TMGR_SCHEDULING_PENDING
from rp_api.states import TMGR_STAGING_INPUT as TMGR_STAGING_INPUT
from rp_api.states import TMGR_STAGING_INPUT_PENDING as TMGR_STAGING_INPUT_PENDING
from rp_api.states import TMGR_STAGING_OUTPUT as TMGR_STAGING_OUTPUT
from rp_api.states import TMGR_STAGING_OUTPUT_PENDING as TMGR_STAGING_OUTPUT_PENDING
from rp_api.task_info.usage import TaskTimes as TaskTimes
from rp_api.task_info.usage import TaskUsage as TaskUsage
from rp_client.completion.result import TaskResult as TaskResult
from rp_client.completion.waits import as_completed as as_completed
from rp_client.completion.waits import wait as wait
from rp_client.executor.executor import Executor as Executor
from rp_client.executor.manager import BrokenPilotExecutor as BrokenPilotExecutor
from rp_client.handles.partition import Partition as Partition
from rp_client.handles.pilot import Pilot as Pilot
from rp_client.handles.pilot_manager import PilotManager as PilotManager
from rp_client.handles.raptor import RaptorMaster as RaptorMaster
from rp_client.handles.raptor import RaptorWorker as RaptorWorker
from rp_client.handles.session import Session as Session
from rp_client.handles.sweep import Sweep as Sweep
from rp_client.handles.task import Task as Task
from rp_client.handles.task_manager import TaskManager as TaskManager
from rp_client.progress import TaskProgress as TaskProgress

version: str
version_short: str
version_base: str
version_detail: str
version_branch: str | None
version_tag: str | None
