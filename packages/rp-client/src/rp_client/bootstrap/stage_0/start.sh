# The start of stage 1, and the main function.

rp_stage_1='
import os, sys
sys.path[:] = [os.path.abspath(path) for path in sys.path if path]
try:
    from rp_agent.bootstrap.stage_1 import main
except ImportError as error:
    sys.stderr.write("%s: %s\n" % (sys.executable, error))
    sys.exit(99)
sys.exit(main())
'

rp_run_stage_1() {
    rp_doing='running the agent'
    export RP_PILOT_SANDBOX="$rp_sandbox"
    rp_warned=yes
    rp_run "$rp_python" -c "$rp_stage_1"
    trap '' $rp_warnings
    if test "$rp_code" -eq 99; then
        rp_words=$("$rp_python" -c "$rp_stage_1" 2>&1 | tail -n 1)
        rp_fail "$rp_exit_agent" "rp-agent cannot be imported in the Python of the pilot: ${rp_words#*: }; install it \
there: $rp_python -m pip install rp-agent"
    fi
    if test "$rp_code" -ne 0 && ! test -s bootstrap_0.failed && test -d "$rp_sandbox"; then
        rp_fail "$rp_code" "stage 1 ended with exit code $rp_code" bootstrap_0.err
    fi
    rp_ended=yes
}

rp_find_home() {
    test -n "${HOME:-}" && return
    rp_home=$(getent passwd "$(id -u)" 2> /dev/null)
    rp_home=${rp_home%:*}
    if test -n "$rp_home"; then export HOME="${rp_home##*:}"; fi
}

rp_main() {
    exec 4>&2 < /dev/null
    rp_find_home
    trap rp_at_exit EXIT
    trap 'rp_on_signal TERM 15' TERM
    trap 'rp_on_signal INT 2' INT
    trap '' $rp_warnings   # programs that it starts ignore them, too
    rp_enter_sandbox
    rp_read_settings
    test -z "$rp_profile" || rp_begin_profile
    rp_event bootstrap_0_start "$(uname -n)"
    rp_forget_python
    rp_run_commands
    rp_make_tunnel
    rp_prepare_python
    rp_run_stage_1
    exit "$rp_code"
}

rp_main
