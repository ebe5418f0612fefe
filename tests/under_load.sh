#!/usr/bin/env bash
# The short suite beside busy processes: a test that leans on a clock fails here, and not by the hour in CI.
# usage: tests/under_load.sh [ROUNDS [BUSY_PROCESSES_PER_CORE]]   (3 rounds, 2 a core; PYTHON names the interpreter)
# Ends with 1 if any round failed. Give a module or a folder to look closer: TESTS="tests/integration" tests/under_load.sh
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${1:-3}
per_core=${2:-2}
python=${PYTHON:-.venv/bin/python}
read -r -a tests <<< "${TESTS:-tests}"

busy=()
trap 'kill "${busy[@]}" 2> /dev/null' EXIT
for _ in $(seq $((per_core * $(getconf _NPROCESSORS_ONLN)))); do
  "$python" -c 'while True: pass' &
  busy+=($!)
done

failed=0
for round in $(seq "$rounds"); do
  printf '\n=== round %d of %d beside %d busy processes\n' "$round" "$rounds" "${#busy[@]}"
  "$python" -m pytest -q --timeout 240 "${tests[@]}" || failed=$((failed + 1))
done
printf '\n%d of %d rounds failed.\n' "$failed" "$rounds"
[[ $failed -eq 0 ]]
