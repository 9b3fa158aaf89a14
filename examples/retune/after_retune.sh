#!/usr/bin/env bash
# What to do after `autopipe retune --exit-code`, by the code that it ended with.
#
#     after_retune.sh CODE ARTIFACT
#
# Ends with 0 where there is nothing to worry about, else with CODE. ON_CHANGED, if it is set, is a command that runs with
# the artifact as its last argument where the configuration is another one than before: to publish it, say.
set -euo pipefail

code=$1 artifact=$2
case $code in
0)
    echo "$artifact: a new configuration"
    if [[ -n ${ON_CHANGED:-} ]]; then bash -c "$ON_CHANGED \"\$1\"" on_changed "$artifact"; fi
    ;;
6) echo "$artifact: the former configuration stays" ;;
7) ;; # nothing was to do, and nothing is said, so that cron sends no mail
3)
    echo "$artifact: the workload could not be measured; training can go on with the profile that is there" >&2
    exit 3
    ;;
*)
    echo "$artifact: autopipe retune failed ($code)" >&2
    if [[ $code =~ ^[1-9][0-9]*$ ]]; then exit "$code"; fi
    exit 1 # systemd gives a signal's name
    ;;
esac
