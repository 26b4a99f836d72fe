#!/usr/bin/env bash
# Fails when less than LEAST percent of a model's multiply-accumulates can run on the DLA.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: gate.sh TARGET LEAST MODEL..." >&2; exit 2; }
target=$1 least=$2
shift 2
status=0
for model in "$@"; do
    # 1: below the limit; anything else is an error of its own and ends the script
    edgekit check "$model" --target "$target" --fail-under "$least" --json >"${model%.onnx}.check.json" || {
        code=$?
        [ "$code" = 1 ] || exit "$code"
        status=1
        echo "$model: below $least %" >&2
    }
done
exit "$status"
