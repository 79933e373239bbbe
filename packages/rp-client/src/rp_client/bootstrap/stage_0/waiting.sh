# Waiting: programs that are run, and an end to what takes too long.

# rp_guard_with SECONDS: kill what this shell waits for when it takes longer; `rp_end_guard` ends that
rp_guard_with() {
    rp_guard_file=$rp_sandbox/bootstrap_0.late
    (
        trap - EXIT TERM INT HUP
        rp_index=0
        while test "$rp_index" -lt "$1"; do
            sleep 1   # and not longer, as nobody ends this program when the guard is ended
            kill -0 $$ || exit 0   # a command has put something in the place of this shell
            rp_index=$((rp_index + 1))
        done
        : > "$rp_guard_file"
        rp_kill_below $$ "$(exec sh -c 'echo $PPID')"
        # a shell that still waits, waits for something that it does itself
        sleep 2
        (rp_fail "$rp_exit_patience" "commands of pre_bootstrap_0 took longer than $1 s, and cannot be ended")
        kill -KILL $$
    ) > /dev/null 2>&1 < /dev/null &
    rp_guard=$!
}

rp_end_guard() {
    test -n "$rp_guard" || return 0
    kill -KILL "$rp_guard"   # it may not have got as far as listening to another signal
    wait "$rp_guard"
    rp_guard=
    rm -f "$rp_guard_file"
} 2> /dev/null

# rp_late: whether the guard has struck
rp_late() {
    test -n "$rp_guard" && test -e "$rp_guard_file"
}

# rp_kill_below PID EXCEPTION: kill the descendants of a process, but for one and its own
rp_kill_below() {
    for rp_pid in $(cat "/proc/$1/task/$1/children" 2> /dev/null); do
        test "$rp_pid" = "$2" || (rp_kill_below "$rp_pid" "$2"; kill -KILL "$rp_pid")
    done
}

# rp_run COMMAND ...: run a program; its exit code is in rp_code. Signals reach it while we wait.
rp_run() {
    "$@" < /dev/null 4>&- 5>&- &
    rp_child=$!
    # a signal that has come ends `wait`, too
    while :; do
        wait "$rp_child"
        rp_code=$?
        kill -0 "$rp_child" 2> /dev/null || break
    done
    rp_child=
}
