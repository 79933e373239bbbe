"""Names that other systems have for attributes of descriptions, and what to use instead, for error messages.

They come from RADICAL-Pilot's earlier versions, Slurm, PSI/J, Dask, Parsl, HyperQueue and GNU parallel, and from
habit. The keys are in lower case, with `_` for `-`.
"""

from __future__ import annotations

from collections.abc import Mapping

_SIZE = 'use "ranks" for the number of processes, and "cores_per_rank" for the cores of each'
_PROGRAM = ('use "executable" for the program and "arguments" for its arguments; for a line of shell, set them to "sh" '
            'and ["-c", line]')


def _of_pilot(name: str, more: str = '') -> str:
    return f'set PilotDescription.{name}: a task runs within a pilot, which is the batch job{more}'


def _table(*groups: tuple[str, str]) -> Mapping[str, str]:
    """Return what to use instead of each name, from pairs of a sentence and its names."""
    return {name: sentence for sentence, names in groups for name in names.split()}


OF_TASKS = _table(
    (_PROGRAM, 'cmd command_line cmdline program exe exec binary app script shell'),
    ('use "arguments", a list with an entry for each argument', 'arg argv argument_list parameters params'),
    ('use "environment", a dict of variables',
     'env envs environ env_vars envvars environment_variables export variables'),
    ('use "sandbox" for the working directory; without it, each task has a directory of its own',
     'cwd workdir work_dir working_dir working_directory directory dir chdir folder path'),
    ('use "cores_per_rank" for threads, or "ranks" for processes',
     'cores core ncores n_cores num_cores cores_per_task cores_per_process cores_per_worker'),
    (_SIZE,
     'cpu cpus ncpus n_cpus num_cpus cpu_count cpus_per_task cpus_per_rank cpu_cores resources resource_spec '
     'parsl_resource_specification requirements_spec resource_request slots_per_task'),
    ('use "cores_per_rank" for the cores of each process, with "threading_type" OpenMP to set OMP_NUM_THREADS',
     'threads nthreads n_threads num_threads threads_per_rank threads_per_process threads_per_task omp_num_threads'),
    ('use "ranks" for the number of processes',
     'procs nprocs n_procs num_procs np processes n_processes num_processes process_count tasks ntasks n_tasks '
     'num_tasks nranks n_ranks num_ranks mpi_ranks mpi_processes rank_count'),
    ('use "ranks" for the number of MPI processes, with "use_mpi" for a single one', 'mpi is_mpi parallel mpi_type'),
    ('use "ranks" for the number of processes, with "ranks_per_node" for the most of them on one node',
     'nodes node nnodes n_nodes num_nodes node_count nodes_per_task ppn procs_per_node processes_per_node '
     'processes_per_host tasks_per_node ntasks_per_node ranks_per_host'),
    ('use "gpus_per_rank" for the GPUs of each process',
     'gpu gpus ngpus n_gpus num_gpus gpu_count gpus_per_task gpus_per_process gpus_per_node gpu_cores gres '
     'accelerators gpu_cores_per_process'),
    ('use "mem_per_rank", in MB',
     'mem memory memory_per_rank memory_per_task mem_per_task mem_per_cpu mem_per_node memory_per_process ram '
     'max_memory'),
    ('use "lfs_per_rank", in MB', 'disk storage scratch_size tmp local_storage'),
    ('use "retries", the number of further attempts after a failure',
     'retry max_retries num_retries nretries attempts max_attempts max_tries crash_limit restarts'),
    ('use "timeout", in seconds; the run time of the batch job is PilotDescription.runtime, in minutes',
     'walltime wall_time wall_clock_limit runtime run_time max_runtime time time_limit timelimit time_request '
     'duration max_time deadline time_min'),
    ('use "input_staging"',
     'inputs input_files input_data infiles stage_in files upload upload_input_data copy_input_data link_input_data '
     'transfer_input_files'),
    ('use "output_staging"',
     'outputs output_files output_data outfiles stage_out download download_output_data copy_output_data '
     'transfer_output_files'),
    ('use "stdout", the name of a file', 'output out outfile stdout_path stdout_file output_file log logfile'),
    ('use "stderr", the name of a file', 'error err errfile stderr_path stderr_file error_file'),
    ('tasks have no standard input: use the "executable" sh, with the "arguments" ["-c", "program < file"]',
     'stdin stdin_path stdin_file input input_file'),
    ('use "container"', 'image docker singularity apptainer podman container_image docker_image'),
    ('use "pre_exec", a list of shell commands such as "module load gromacs"',
     'module modules module_load setup setup_commands before before_script pre_run pre_script prologue worker_init '
     'preamble pre_commands'),
    ('use "post_exec", a list of shell commands', 'after_script post_run post_script epilogue post_commands teardown'),
    ('use "named_env", the name of an environment that Pilot.prepare_env makes',
     'conda conda_env venv virtualenv python_env pip requirements packages'),
    ('use "name"', 'label title job_name task_name display_name'),
    ('use "uid"', 'id task_id taskid jobid job_id identifier'),
    ('use "metadata"', 'meta user_data userdata extra annotations attributes'),
    ('use "function", with the mode TASK_FUNCTION and rp.PythonTask(function, args, kwargs)',
     'func fn callable target python_function py_function callback'),
    ('use "kwargs", or arguments of rp.PythonTask', 'keyword_arguments keywords'),
    ('use "tags" to choose nodes: {"nodes": [...]}',
     'host hosts hostname hostlist node_list nodelist exclude affinity placement constraint candidate_hosts'),
    ('use "tags": {"colocate": ..., "exclusive": ...}', 'exclusive exclusive_node_use colocate'),
    ('use "after", a list of tasks or uids, or a dict of these with "done", "ended" or "failed" for each',
     'depends_on depends dependencies dependency deps requires wait_for waits_for parents parent upstream '
     'predecessors afterok afterany afternotok after_tasks'),
    ('use "priority"', 'prio weight'),
    ('use "raptor_id", the uid of a RAPTOR master', 'master raptor raptor_master'),
    ('use "pilot", the uid of a pilot', 'pilot_id pilot_uid'),
    (_of_pilot('resource'), 'resource platform machine cluster site executor executors backend'),
    (_of_pilot('queue'), 'queue queue_name qos batch_queue'),
    (_of_pilot('project'), 'project project_name account allocation'),
    (_of_pilot('queue', '; write <partition>:<qos> for both'), 'batch_partition'),
)
"""The attributes to use for names that are no attributes of a task description."""


OF_PILOTS = _table(
    ('use "runtime", in minutes',
     'walltime wall_time wall_clock_limit run_time max_runtime time time_limit timelimit duration max_time timeout'),
    ('use "project"', 'account allocation project_name charge_account'),
    ('use "queue"; <partition>:<qos> sets both', 'partition queue_name qos batch_queue batch_partition'),
    ('use "project": <project>:<reservation> sets both', 'reservation reservation_id'),
    ('use "nodes"', 'node nnodes n_nodes num_nodes node_count nodes_per_block node_number'),
    ('use "cores" for their total number, or "nodes"',
     'core cpu cpus ncpus n_cpus num_cpus ncores n_cores num_cores cpu_count total_cores cpu_processes processes '
     'ranks slots ntasks cores_per_rank cores_per_node workers'),
    ('use "gpus" for their total number, or "nodes"',
     'gpu ngpus n_gpus num_gpus gpu_count gpus_per_node gpus_per_rank gres'),
    ('use "memory", the total in MB', 'mem ram mem_per_node memory_per_node mem_per_cpu mem_per_rank'),
    ('use "resource", the label of a platform such as "local.localhost"',
     'platform machine host hostname site cluster system backend resource_name provider'),
    ('use "access_schema"', 'schema access'),
    ('use "sandbox" for the base directory',
     'cwd workdir work_dir working_dir working_directory directory dir scratch'),
    ('use "job_name"', 'name label title'),
    ('use "uid"', 'id pilot_id pilot_uid'),
    ('use "prepare_env" for environments of tasks, or TaskDescription.environment for variables',
     'env envs environ environment environment_variables env_vars conda conda_env venv virtualenv named_env'),
    ('use TaskDescription.pre_exec for commands before each task; commands before the agent are in the definition of'
     ' the platform',
     'pre_exec pre_bootstrap_0 pre_bootstrap_1 worker_init setup modules module prologue'),
    ('the batch system chooses the hosts', 'candidate_hosts hosts node_list nodelist hostlist exclude'),
    ('the name of this file is fixed, see Pilot.stdout for its last lines', 'output stdout outfile'),
    ('the name of this file is fixed, see Pilot.stderr for its last lines', 'error stderr errfile'),
    ('use "partitions" for the parts of a pilot that have an agent each', 'layout n_partitions num_partitions'),
    ('use "input_staging"', 'inputs input_files stage_in files input_data'),
    ('use "output_staging"', 'outputs output_files stage_out output_data'),
    ('use "_config"', 'config cfg agent_config'),
)
"""The attributes to use for names that are no attributes of a pilot description."""
