# Private directories. Scripts that make sandboxes on other hosts use this part, too.

# rp_not_own DIRECTORY: print why other users could change its files; nothing if they cannot
rp_not_own() {
    rp_listed=$(LC_ALL=C ls -ldn "$1" 2> /dev/null)
    case $rp_listed in
        d*) ;;
        l*) echo "it is a symbolic link of user $(rp_owner_of "$1")" && return ;;
        *) echo 'it is not a directory' && return ;;
    esac
    if test "$(rp_third $rp_listed)" != "$(id -u)"; then
        echo "it belongs to user $(rp_owner_of "$1"), another user than $(id -u)"
        return
    fi
    case $rp_listed in ?????w* | ????????w*) echo "others may write to it (mode ${rp_listed%% *})" ;; esac
}

# rp_not_base DIRECTORY: print why another user could have planted it; nothing if none could
rp_not_base() {
    rp_above=$(LC_ALL=C ls -ldn "${1%/*}/." 2> /dev/null)
    case $rp_above in ????????w*) ;; *) return ;; esac
    case $(rp_third $(LC_ALL=C ls -ldn "$1")) in
        0 | "$(id -u)" | "$(rp_third $rp_above)") ;;
        *) echo "it belongs to user $(rp_owner_of "$1"), in a directory where every user can make entries" ;;
    esac
}

# rp_make_own PILOT: make the sandbox of a pilot in that of its session; exit if one of them is not private
rp_make_own() {
    (umask 077 && mkdir -p "$1") || exit 1
    rp_session=${1%/*}
    rp_refuse "${rp_session%/*}" "$(rp_not_base "${rp_session%/*}")"
    rp_refuse "$rp_session" "$(rp_not_own "$rp_session")"
    rp_refuse "$1" "$(rp_not_own "$1")"
}

rp_refuse() {
    test -z "$2" && return
    echo "$1 is not ours alone: $2"
    exit 1
}

rp_owner_of() {
    rp_third $(LC_ALL=C ls -ld "$1")
}

rp_third() {
    echo "$3"
}
