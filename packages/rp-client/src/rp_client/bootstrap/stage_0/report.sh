# Reports: events and failures.

# rp_json TEXT: print the text as the inside of a JSON string
rp_json() {
    printf '%s\n' "$1" | LC_ALL=C sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/	/\\t/g' -e 's/$/\\n/' |
        LC_ALL=C tr -d '\000-\037'
}

# rp_event NAME [MESSAGE]: record an event
rp_event() {
    test -z "$rp_profile" || rp_row "$1" "$rp_pilot" "${2:-}"
}

rp_row() {
    {
        rp_now=$(date +%s.%N)
        case $rp_now in *[!0-9.]*) rp_now=${rp_now%%.*}.0 ;; esac   # a date without %N
        printf '%s.%.7s,%s,bootstrap_0,MainThread,%s,,%s\n' "${rp_now%%.*}" "${rp_now#*.}0000000" "$1" "$2" "$3" \
            >> "$rp_sandbox/bootstrap_0.prof"
    } 2> /dev/null
}

rp_begin_profile() {
    test ! -s bootstrap_0.prof || mv bootstrap_0.prof bootstrap_0.prof.old   # the job has run before
    echo '#time,event,comp,thread,uid,state,msg' > bootstrap_0.prof
    rp_now=$(date +%s.0000000)
    rp_row sync_abs '' "$(uname -n):127.0.0.1:$rp_now:$rp_now:sys"
}

# rp_fail CODE SENTENCE [FILE]: report a failure, and exit
rp_fail() {
    rp_ended=yes
    cd "$rp_sandbox" || exit "$1"
    echo "bootstrap_0.sh: $2" >&4
    rp_more=${3:-}
    test -s "$rp_more" || rp_more=
    rp_said=
    if test -n "$rp_more"; then
        rp_said=$(tail -n 20 "$rp_more" | tail -c 2048)
        printf '%s\n' "$rp_said" >&4
    fi
    {
        printf '{"stage": 0, "exit_code": %s, "sentence": "%s", "file": "%s", "tail": "%s"}\n' \
            "$1" "$(rp_json "$2")" "$(rp_json "${rp_more:+$rp_sandbox/$rp_more}")" "$(rp_json "$rp_said")" \
            > bootstrap_0.failed
    } 2> /dev/null
    exit "$1"
}

# The exit trap, which also runs if a command of the platform ends this shell.
rp_at_exit() {
    rp_code=$?
    set +eu
    trap '' TERM INT HUP
    trap - EXIT
    rp_end_guard
    if test -z "$rp_ended"; then
        (rp_fail "$rp_exit_unforeseen" "the shell ended (exit code $rp_code) while $rp_doing" "$rp_file")
        rp_code=$rp_exit_unforeseen
    fi
    test ! -d "$rp_sandbox" || cd "$rp_sandbox"
    rp_event bootstrap_0_stop
    test -z "$rp_profile" || rp_row END '' ''
    exit "$rp_code"
}

# The signal trap, for a batch system that ends the job.
rp_on_signal() {
    rp_told="the job was told to end (SIG$1) while $rp_doing"
    rp_event killme
    if test -n "$rp_child"; then
        kill -TERM "$rp_child" 2> /dev/null
        rp_event sigterm
    else
        rp_fail $((128 + $2)) "$rp_told" "$rp_file"
    fi
}
