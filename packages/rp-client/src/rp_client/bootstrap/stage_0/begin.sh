#!/bin/sh
# Stage 0 of a pilot: prepares shell and Python on the first node of the job, starts stage 1 and waits for its end.
#
# The client writes this file into the pilot's sandbox, with pilot.sh (its settings, shell assignments) and agent_0.cfg
# (for the agent). The job runs `/bin/sh <sandbox>/bootstrap_0.sh`. POSIX sh: it runs in dash, bash, ksh.
#
# - A failure is reported in one sentence, on standard error, and, with the last lines of the file with details, in
#   bootstrap_0.failed (JSON), which the launcher reads when the job has ended.
# - The prefix rp_ is reserved for this script; the platform's commands run in the same shell.
# - The parts of this file are in rp_client/bootstrap/stage_0.
# - The job's original environment stays readable in /proc/$$/environ, from which stage 1 reads it.

# A truncated file ends here; without this trap it would look like a success.
trap 'rp_sentence="bootstrap_0.sh is cut off: was the disk full, or over quota?"
    echo "$rp_sentence" >&2
    echo "{\"stage\": 0, \"exit_code\": 19, \"sentence\": \"$rp_sentence\", \"file\": \"\", \"tail\": \"\"}" \
        > "${0%/*}/bootstrap_0.failed"
    exit 19' EXIT

# exit codes; those of stage 1 begin at 20
rp_exit_sandbox=10
rp_exit_settings=11
rp_exit_python=12
rp_exit_commands=13
rp_exit_tunnel=14
rp_exit_virtenv=15
rp_exit_patience=16
rp_exit_agent=17
rp_exit_unforeseen=18
rp_exit_again=24   # as in stage 1

rp_doing='starting'
rp_file=
rp_ended=
rp_child=
rp_told=
rp_warned=   # if set, warnings are forwarded to the child
rp_warnings='HUP USR1 USR2 ALRM XCPU'
rp_guard=
rp_pilot=
rp_profile=
rp_tunnel_dir=
rp_sandbox=.
rp_submission=${1:-}
