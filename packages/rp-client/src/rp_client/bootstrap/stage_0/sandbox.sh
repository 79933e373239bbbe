# Sandbox and settings.

rp_enter_sandbox() {
    rp_sandbox=${RP_PILOT_SANDBOX:-}
    case $0 in */*) rp_sandbox=${0%/*} ;; esac
    if ! cd "${rp_sandbox:-.}" 2> /dev/null; then
        echo "bootstrap_0.sh: the sandbox $rp_sandbox cannot be entered" >&4
        rp_ended=yes
        exit "$rp_exit_sandbox"
    fi
    rp_sandbox=$(pwd)
    rp_words=$(rp_not_own .)
    if test -n "$rp_words"; then   # write nothing: other users may have planted links to files of this user
        echo "bootstrap_0.sh: the sandbox $rp_sandbox is not ours alone: $rp_words" >&4
        rp_ended=yes
        exit "$rp_exit_sandbox"
    fi
    rp_claim
    rm -f bootstrap_0.failed 2> /dev/null
    rp_words=$( (date > bootstrap_0.probe && rm bootstrap_0.probe) 2>&1)
    test -z "$rp_words" ||
        rp_fail "$rp_exit_sandbox" "the sandbox $rp_sandbox cannot be written on $(uname -n): ${rp_words##*: }"
}

# rp_claim: end this job if another one was submitted in its place; the first to make the link decides
rp_claim() {
    test -z "$rp_submission" || ln -s started "job.$rp_submission" 2> /dev/null && return
    if test "$(readlink "job.$rp_submission")" = replaced; then
        echo "bootstrap_0.sh: another job was submitted in place of this one, which ends" >&4
        rp_ended=yes
        exit 0
    fi
}

rp_read_settings() {
    rp_complete=
    test -r pilot.sh || rp_fail "$rp_exit_settings" "$rp_sandbox/pilot.sh, which the client writes, is not there"
    rp_file=pilot.sh
    rp_doing="reading $rp_sandbox/pilot.sh"
    . ./pilot.sh
    test -n "$rp_complete" ||
        rp_fail "$rp_exit_settings" "$rp_sandbox/pilot.sh is cut off: was the disk full, or over quota?"
    # the agent removes its configuration at its end, and the other file is from stage 1: the job was restarted
    if test ! -f agent_0.cfg && test -f bootstrap_2.sh; then
        rp_profile=   # keep the profile of the first run
        rp_fail "$rp_exit_again" "the batch system has started the job of $rp_pilot again$(rp_times), after its agent \
had ended: the pilot is over"
    fi
    test -s agent_0.cfg ||
        rp_fail "$rp_exit_settings" "$rp_sandbox/agent_0.cfg, which the client writes, is not there or empty"
    rp_file=
}

# rp_times: print how often the batch system has restarted the job, if known
rp_times() {
    rp_count=${SLURM_RESTART_COUNT:-${PBS_RUNCOUNT:-}}
    test -z "$rp_count" || echo " (restart $rp_count)"
}

# rp_need NAME VALUE PATH: check a variable in a path; called by pilot.sh
rp_need() {
    test -n "$2" ||
        rp_fail "$rp_exit_settings" "the path $3 in the platform's definition has the variable $1, which is not set on \
$(uname -n)"
}
