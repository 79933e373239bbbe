# Python and virtual environments.

# Remove the job's virtual environment and Python paths, which may be for another Python, from the environment.
rp_forget_python() {
    test "$rp_mode" != none || return 0
    unset PYTHONPATH PYTHONHOME PYTHONSTARTUP
    test -n "${VIRTUAL_ENV:-}" || return 0
    rp_rest=$PATH:
    PATH=
    while test -n "$rp_rest"; do
        rp_entry=${rp_rest%%:*}
        rp_rest=${rp_rest#*:}
        test "$rp_entry" = "$VIRTUAL_ENV/bin" || PATH=$PATH${PATH:+:}$rp_entry
    done
    unset VIRTUAL_ENV VIRTUAL_ENV_PROMPT
}

# rp_try_python PROGRAM: succeed if it runs and is new enough; otherwise set rp_why
rp_try_python() {
    rp_why=$("$1" -I -S -c 'import sys
if sys.version_info < (3, 10): print("Python %d.%d" % sys.version_info[:2])' 2>&1)
    rp_code=$?
    test "$rp_code" -eq 0 || rp_why="it ends with exit code $rp_code: $(printf '%s\n' "$rp_why" | tail -n 1)"
    test -z "$rp_why"
}

# Find an interpreter outside of virtual environments: the one that the platform names, or the first that is usable.
rp_find_python() {
    rp_doing='looking for a Python'
    rp_seen=
    for rp_name in ${rp_interpreter:+"$rp_interpreter"} \
        ${rp_interpreter:-$rp_client_python python3 python3.13 python3.12 python3.11 python3.10 python}; do
        rp_python=$(command -v "$rp_name" 2> /dev/null) || continue
        if rp_try_python "$rp_python"; then
            return 0
        fi
        rp_seen="$rp_seen; $rp_python: $rp_why"
    done
    if test -n "$rp_seen"; then
        rp_fail "$rp_exit_python" "the agent needs Python 3.10 or newer, and $(uname -n) has none${rp_seen}"
    fi
    rp_fail "$rp_exit_python" "there is no Python on $(uname -n): ${rp_interpreter:-python3} is not found (PATH: $PATH)"
}

rp_prepare_python() {
    if test -n "$rp_client_path"; then
        PYTHONPATH=$rp_client_path${PYTHONPATH:+:$PYTHONPATH}
        export PYTHONPATH
    fi
    case $rp_mode in
        private | create | update | recreate) rp_make_virtenv ;;
        *)
            if test -n "$rp_virtenv"; then rp_use_virtenv; else rp_find_python; fi
            test -z "$rp_tree" || rp_make_tree
            ;;
    esac
}

# Make or update the virtual environment, and use it.
rp_make_virtenv() {
    rp_event ve_setup_start
    rp_find_python
    rp_install "$rp_mode" "$rp_virtenv"
    rp_event ve_setup_stop
    rp_use_virtenv
}

# Install the agent outside of a virtual environment that must not be changed.
rp_make_tree() {
    rp_install tree "$rp_tree"
    PYTHONPATH=$rp_tree${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
}

# rp_install MODE DIRECTORY: run the program that makes environments and installs packages
rp_install() {
    rp_doing="making $2"
    rp_file=bootstrap_0.log
    rp_run "$rp_python" -I bootstrap_0.py "$1" "$2" --session "$rp_session" --pilot "$rp_pilot" --dist "$rp_dist" \
        ${rp_profile:+--profile} ${rp_bundle:+--bundle "$rp_bundle"} $rp_requirements > bootstrap_0.said
    rp_words=$(tail -n 1 bootstrap_0.said)
    rm -f bootstrap_0.said
    test -z "$rp_told" || rp_fail "$rp_code" "$rp_told" bootstrap_0.log
    test "$rp_code" -eq 0 || rp_fail "$rp_code" "${rp_words:-making $2 ended with exit code $rp_code}" bootstrap_0.log
    rm -f bootstrap_0.log ${rp_bundle:+"$rp_bundle"}
    rp_file=
}

# Use the interpreter of an existing virtual environment.
rp_use_virtenv() {
    rp_doing="activating $rp_virtenv"
    rp_event ve_activate_start
    rp_python=$rp_virtenv/bin/python
    test -d "$rp_virtenv" || rp_fail "$rp_exit_virtenv" "the virtual environment $rp_virtenv (mode $rp_mode) is not there \
on $(uname -n)"
    test -x "$rp_python" ||
        rp_fail "$rp_exit_virtenv" "the virtual environment $rp_virtenv is broken: $rp_python is not there, or its target \
is gone"
    rp_try_python "$rp_python" ||
        rp_fail "$rp_exit_virtenv" "the virtual environment $rp_virtenv cannot be used, as the agent needs Python 3.10 or \
newer: $rp_why"
    VIRTUAL_ENV=$rp_virtenv
    PATH=$rp_virtenv/bin:$PATH
    export VIRTUAL_ENV PATH
    rp_event ve_activate_stop
}
