# The platform's commands, pre_bootstrap_0.

rp_run_commands() {
    test "$rp_pre_count" -gt 0 || return 0
    rp_event pre_bootstrap_0_start
    rp_file=bootstrap_0.log
    command -v source > /dev/null 2>&1 || eval 'source() { . "$@"; }'
    rp_guard_with "$rp_patience"
    rp_index=1
    while test "$rp_index" -le "$rp_pre_count"; do
        eval "rp_line=\$rp_pre_$rp_index"
        rp_run_line
        rp_index=$((rp_index + 1))
    done
    rp_end_guard
    cd "$rp_sandbox" || rp_fail "$rp_exit_sandbox" "the sandbox $rp_sandbox is gone"
    rm -f bootstrap_0.log
    rp_file=
    rp_event pre_bootstrap_0_stop
}

rp_run_line() {
    rp_doing="running command $rp_index of pre_bootstrap_0: $rp_line"
    rp_is_module=
    case $rp_line in
        'module '* | 'ml '*)
            rp_is_module=yes
            rp_find_module
            ;;
    esac
    rp_log=$rp_sandbox/bootstrap_0.log   # a command may change the directory
    eval "$rp_line" > "$rp_log" 2>&1 < /dev/null
    rp_code=$?
    set +eu
    if rp_late; then
        rp_fail "$rp_exit_patience" "a command of pre_bootstrap_0 took longer than $rp_patience s: $rp_line" \
            bootstrap_0.log
    fi
    # some versions of module print an error and exit with 0
    if test -n "$rp_is_module" && grep -q -E 'ERROR|Unable to locate|following module\(s\) are unknown' "$rp_log"
    then
        rp_code=1
    fi
    test "$rp_code" -eq 0 ||
        rp_fail "$rp_exit_commands" "a command of pre_bootstrap_0 failed with exit code $rp_code: $rp_line" \
            bootstrap_0.log
    cat "$rp_log"
}

# Define the command `module`, which many machines define for login shells only.
rp_find_module() {
    for rp_init in /etc/profile "${MODULESHOME:-/nowhere}/init/sh" "${LMOD_PKG:-/nowhere}/init/sh" \
        /etc/profile.d/modules.sh /etc/profile.d/lmod.sh; do
        command -v module > /dev/null 2>&1 && return 0
        # try it in a sub-shell first: a script for another kind of shell may end this one
        if test -r "$rp_init" && (. "$rp_init") > /dev/null 2>&1 < /dev/null 4>&-; then
            . "$rp_init" > /dev/null 2>&1 < /dev/null
        fi
    done
    command -v module > /dev/null 2>&1 ||
        rp_fail "$rp_exit_commands" "there is no module command on $(uname -n), which pre_bootstrap_0 uses: $rp_line"
}
