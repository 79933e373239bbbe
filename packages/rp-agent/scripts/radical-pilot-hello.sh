#!/bin/sh
# A task to try things out with: tells who and where it is and what it may use, in one line, and sleeps.
#
#     radical-pilot-hello.sh [SECONDS [WORDS...]]
#
# It needs nothing but a POSIX shell, so it runs as well where it was staged to.

seconds=${1:-0}
test $# -gt 0 && shift

cores=unknown
if test -r /proc/self/status; then
    while read -r name value; do
        test "$name" = Cpus_allowed_list: && cores=$value
    done < /proc/self/status
fi
gpus=${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-${ZE_AFFINITY_MASK:-none}}}

echo "hello from ${RP_TASK_ID:-no task}, rank ${RP_RANK:-0} of ${RP_RANKS:-1}, on $(uname -n):" \
    "CPUs $cores, threads ${OMP_NUM_THREADS:-1}, GPUs $gpus${1:+, }$*"
exec sleep "$seconds"
