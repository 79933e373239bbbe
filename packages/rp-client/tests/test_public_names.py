"""What tab completion shows of the objects that applications hold: all that users call, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from client_support import a_pilot, a_task

from rp_api.constants import RAPTOR_MASTER
from rp_client.core.pilot import PartitionRecord
from rp_client.handles.partition import Partition
from rp_client.handles.pilot import Pilot
from rp_client.handles.pilot_manager import PilotManager
from rp_client.handles.session import Session
from rp_client.handles.sweep import Sweep
from rp_client.handles.task import Task
from rp_client.handles.task_manager import TaskManager

TASK = """
    as_dict attempts cached cancel client_sandbox connect description done endpoint_fs error exception
    exception_detail exit_code explain future history info launch_command launch_method losses metadata mode name
    open_stderr open_stdout origin output_files partition pilot pilot_sandbox read_stderr read_stdout reason
    register_callback resource_sandbox result return_value sandbox session session_sandbox slots state stderr stdout
    task_sandbox times tmgr uid usage wait wait_info waits_for"""
PILOT = """
    add_partition agent_sandbox as_dict attach_tmgr cancel client_sandbox description endpoint_fs exception
    exception_detail explain log nodelist partitions pilot_sandbox pmgr prepare_env reason register_callback
    register_service remove_partition resource resource_details resource_sandbox resources rest_url rpc session
    session_sandbox stage_in stage_out state stderr stdout submit_raptors submit_tasks uid unregister_callback wait"""
PUBLIC: dict[type, tuple[Callable[[], Any], str]] = {
    Task: (lambda: a_task().handle, TASK),
    Pilot: (lambda: a_pilot().handle, PILOT),
    Partition: (lambda: Partition(a_pilot().handle.pmgr, PartitionRecord(a_pilot(), 0)), PILOT + ' number'),
    Session: (lambda: Session, """
        add_resource_config as_dict attached cfg close closed dump fetch_logfiles fetch_profiles get_pilot_managers
        get_resource_config get_task_managers inject_metadata list_pilot_managers list_resources list_task_managers
        proxy_url rcfgs reg_addr"""),
    PilotManager: (lambda: PilotManager, """
        as_dict cancel_pilots cfg check_uid close dump get_pilots kill_pilots list_pilots register_callback session
        submit_pilots unregister_callback wait_pilots"""),
    Sweep: (lambda: Sweep, 'cancel failed in_state states to_frame uid unfinished wait'),
    TaskManager: (lambda: TaskManager, """
        add_pilots as_completed as_dict cancel_tasks close dump forget_tasks get_pilots get_sweeps get_tasks list_pilots
        list_tasks pilot_rpc register_callback remove_pilots session submit_raptors submit_sweep submit_tasks
        submit_workers to_frame unregister_callback wait_tasks"""),
}


def public(thing: Any) -> list[str]:
    return sorted(name for name in dir(thing) if not name.startswith('_'))


@pytest.mark.parametrize('kind', PUBLIC)
def test_names_of(kind: type) -> None:
    make, names = PUBLIC[kind]
    assert public(make()) == sorted(names.split())


def test_names_of_a_raptor_master() -> None:
    master = a_task(mode=RAPTOR_MASTER).handle
    assert public(master) == sorted([*TASK.split(), 'put_object', 'rpc', 'submit_tasks', 'submit_workers'])
