# The ssh tunnel.

# Forward a local socket, whose path is in RP_TUNNEL, through ssh to the coordinator of the session.
rp_make_tunnel() {
    test -n "$rp_tunnel" || return 0
    rp_doing="making a tunnel to $rp_tunnel_to through $rp_tunnel"
    rp_event tunnel_setup_start
    command -v ssh > /dev/null 2>&1 || rp_fail "$rp_exit_tunnel" "there is no ssh on $(uname -n) to make a tunnel with"
    rp_tunnel_dir=$(mktemp -d /tmp/rp.tunnel.XXXXXX) ||
        rp_fail "$rp_exit_tunnel" "/tmp cannot be written on $(uname -n), where the socket of the tunnel is to be"
    mkfifo "$rp_tunnel_dir/alive"
    rp_keep_tunnel > /dev/null 2>&1 &
    exec 5> "$rp_tunnel_dir/alive"   # the kernel closes it when this shell ends in any way
    rp_index=0
    while ! test -S "$rp_tunnel_dir/hub.sock"; do
        if test -e "$rp_tunnel_dir/ended" || test "$rp_index" -gt 150; then
            cp "$rp_tunnel_dir/err" bootstrap_0.log
            rp_fail "$rp_exit_tunnel" "no tunnel to $rp_tunnel_to can be made through $rp_tunnel from $(uname -n): \
$(tail -n 1 bootstrap_0.log)" bootstrap_0.log
        fi
        sleep 0.1
        rp_index=$((rp_index + 1))
    done
    RP_TUNNEL=$rp_tunnel_dir/hub.sock
    export RP_TUNNEL
    rp_event tunnel_setup_stop
}

# Run ssh until stage 0 has ended, ignoring signals: the agent sends its final report while the job is ended.
rp_keep_tunnel() {
    trap '' TERM INT HUP
    trap - EXIT
    exec 4>&-
    : > "$rp_tunnel_dir/err"
    # the server may close idle connections, hence ServerAliveInterval
    ssh -N -o BatchMode=yes -o ExitOnForwardFailure=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 \
        -o ControlPath=none -o StrictHostKeyChecking=accept-new -o StreamLocalBindMask=0177 \
        -L "$rp_tunnel_dir/hub.sock:$rp_tunnel_to" ${rp_tunnel_port:+-p "$rp_tunnel_port"} "$rp_tunnel" \
        < /dev/null 2> "$rp_tunnel_dir/err" &
    rp_child=$!
    { read -r rp_words < "$rp_tunnel_dir/alive"; kill -KILL "$rp_child"; } &
    wait "$rp_child"
    : > "$rp_tunnel_dir/ended"
    wait
    rm -rf "$rp_tunnel_dir"
}
