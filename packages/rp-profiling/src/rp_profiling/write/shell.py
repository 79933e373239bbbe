"""Two POSIX shell scripts through which a task's shell commands record events.

`$RP_GTOD` is the path of the clock and `$RP_PROF` that of the recorder: a task calls `$RP_PROF event "message"`. The
scripts need only a POSIX `sh`, `date` and `tr`, so they run on compute nodes without Python.
"""

from __future__ import annotations

_GTOD = r"""#!/bin/sh
# prints the time: seconds since the epoch with seven decimals
now=$(date +%s.%N)
fraction=${now#*.}
# where date does not know %N there are no fractions to be had
case $fraction in '' | *[!0-9]*) fraction=0 ;; esac
printf '%s.%.7s\n' "${now%%.*}" "${fraction}0000000"
"""

_PROF = r"""#!/bin/sh
# usage: $RP_PROF event [message]
# appends the event to the profile $RP_PROF_TGT with the time that $RP_GTOD prints; does nothing without one

test -n "$RP_PROF_TGT" || exit 0
test -n "$1" || { echo 'usage: $RP_PROF event [message]' >&2; exit 2; }

event=$1
shift
message=$*
uid=$RP_TASK_ID

clean() {
    printf '%s' "$1" | LC_ALL=C tr ',"' ";'" | LC_ALL=C tr '[:cntrl:]' '[ *]'
}

# a row has seven fields and stands on one line
case $event$message$uid in
    *[[:cntrl:],\"]*)
        event=$(clean "$event")
        message=$(clean "$message")
        uid=$(clean "$uid")
        ;;
esac

# a profile that cannot be written must not make a task fail
{
    now=$("$RP_GTOD") || now=$(date +%s.0000000)
    printf '%s,%s,,MainThread,%s,AGENT_EXECUTING,%s\n' "$now" "$event" "$uid" "$message" >> "$RP_PROF_TGT"
} 2> /dev/null
exit 0
"""


def gtod_script() -> str:
    """Return the clock helper, which prints epoch seconds with seven decimals and a newline."""
    return _GTOD


def task_event_script() -> str:
    """Return the event helper `prof`, called as `$RP_PROF event [message]`.

    It appends one row to the file RP_PROF_TGT, or does nothing if that is unset. It reads RP_TASK_ID and RP_GTOD (the
    path of the clock helper). It exits with 0 even if the row cannot be written, and with 2 only if it is called
    without an event.
    """
    return _PROF
