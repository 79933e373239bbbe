# Running programs, and a time limit for commands.

# rp_guard_with SECONDS: start a guard that kills the child processes of this shell after that time
rp_guard_with() {
    rp_guard_file=$rp_sandbox/bootstrap_0.late
    (
        trap - EXIT TERM INT
        rp_index=0
        while test "$rp_index" -lt "$1"; do
            sleep 1   # not longer, as it survives the guard
            kill -0 $$ || exit 0   # this shell has ended
            rp_index=$((rp_index + 1))
        done
        : > "$rp_guard_file"
        rp_kill_below $$ "$(exec sh -c 'echo $PPID')"
        # without child processes, the shell itself is still busy
        sleep 2
        (rp_fail "$rp_exit_patience" "commands of pre_bootstrap_0 took longer than $1 s, and cannot be ended")
        kill -KILL $$
    ) > /dev/null 2>&1 < /dev/null &
    rp_guard=$!
}

rp_end_guard() {
    test -n "$rp_guard" || return 0
    kill -KILL "$rp_guard"   # it may not have reset its traps yet
    wait "$rp_guard"
    rp_guard=
    rm -f "$rp_guard_file"
} 2> /dev/null

# rp_late: succeed if the time limit was exceeded
rp_late() {
    test -n "$rp_guard" && test -e "$rp_guard_file"
}

# rp_kill_below PID EXCEPTION: kill the descendants of a process, except one and its descendants
rp_kill_below() {
    for rp_pid in $(cat "/proc/$1/task/$1/children" 2> /dev/null); do
        test "$rp_pid" = "$2" || (rp_kill_below "$rp_pid" "$2"; kill -KILL "$rp_pid")
    done
}

# rp_run COMMAND ...: run a program and set rp_code to its exit code; signals are forwarded to it
rp_run() {
    "$@" < /dev/null 4>&- 5>&- &
    rp_child=$!
    for rp_warning in ${rp_warned:+$rp_warnings}; do
        trap "kill -$rp_warning $rp_child 2> /dev/null" "$rp_warning"
    done
    # a signal interrupts `wait`
    while :; do
        wait "$rp_child"
        rp_code=$?
        kill -0 "$rp_child" 2> /dev/null || break
    done
    rp_child=
}
