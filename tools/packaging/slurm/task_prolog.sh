#!/bin/sh
# Slurm's TaskProlog: tasks of jobs that ask for it run under Allograft, without a change to their scripts.
#
# In slurm.conf:      TaskProlog=/etc/slurm/task_prolog.sh
# In a job:           export USE_ALLOGRAFT=1 (sbatch and srun pass it on)
#
# Slurm takes the lines `export NAME=value` of its output into each task's environment. The report of each rank goes to
# the folder that the job was submitted from, unless the job sets ALLOGRAFT_STATS. Nothing is done for a task without a
# GPU, and on a machine where the library is not.
[ "${USE_ALLOGRAFT:-0}" = 1 ] || exit 0
[ -n "${CUDA_VISIBLE_DEVICES:-}" ] || exit 0

library=
for candidate in "${ALLOGRAFT_LIBRARY:-}" /usr/local/lib/*/liballograft.so /usr/local/lib/liballograft.so \
    /usr/lib/*-linux-gnu/liballograft.so /usr/lib64/liballograft.so; do
    if [ -z "$library" ] && [ -r "$candidate" ]; then
        library=$candidate
    fi
done
[ -n "$library" ] || exit 0

echo "export LD_PRELOAD=$library${LD_PRELOAD:+:$LD_PRELOAD}"
case ${ALLOGRAFT_STATS:-}:${SLURM_SUBMIT_DIR:-} in
:*%* | :) ;; # a name of the report gives % a meaning
:*) echo "export ALLOGRAFT_STATS=$SLURM_SUBMIT_DIR/allograft-${SLURM_JOB_ID:-0}-%r.json" ;;
esac
