#!/usr/bin/env bash
# Slurm's TaskProlog (slurm.conf), or `srun --task-prolog`: runs on the node, as the job's user, before each task. A job asks
# for a fresh profile by AUTOPIPE_ARTIFACT=/path/to/autopipe.json in its environment, and finds what came of it in
# AUTOPIPE_RETUNE: changed, kept, fits or failed. Ends with 0 always: a prolog that fails would end the task.
set -uo pipefail

artifact=${AUTOPIPE_ARTIFACT:-}
if [[ -z $artifact ]]; then exit 0; fi

# Tasks of one node come one after the other; the second finds a profile that fits. Slurm reads this script's output.
exec 9>"${TMPDIR:-/tmp}/autopipe-retune-$(id -u).lock"
flock 9
autopipe retune "$artifact" --if-stale --budget 90s --exit-code >&2
case $? in
0) came=changed ;;
6) came=kept ;;
7) came=fits ;;
*) came=failed ;;
esac
echo "export AUTOPIPE_RETUNE=$came"
if [[ $came == failed ]]; then echo "print $artifact could not be renewed; training with the profile that is there"; fi
exit 0
