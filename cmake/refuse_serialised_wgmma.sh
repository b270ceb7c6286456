#!/bin/sh
# Runs a compiler, "$@", and fails where ptxas informs (C75xx) that warpgroup matrix products do not run as they are
# written: serialised, with waits or fences put in, or with setmaxnreg ignored. ptxas has no option that makes these
# warnings or errors, and the code they are about is right, only slow.
set -u
messages=$(mktemp) || exit 1
trap 'rm -f "$messages"' EXIT
trap 'exit 130' INT TERM HUP
"$@" 2>"$messages"
status=$?
cat "$messages" >&2
if [ "$status" -eq 0 ] && grep -q '(C75[0-9][0-9])' "$messages"; then
  echo "error: ptxas changed how warpgroup matrix products run (C75xx above)" >&2
  # What was compiled goes, so that no later build takes it for finished.
  while [ "$#" -gt 1 ]; do
    if [ "$1" = -o ]; then rm -f "$2"; fi
    shift
  done
  status=1
fi
exit "$status"
