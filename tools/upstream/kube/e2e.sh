#!/usr/bin/env bash
# Runs Kubernetes' own end-to-end tests, those of tests.txt, and prints what passed where.
#
#   tools/upstream/kube/e2e.sh               on the lab; what is recorded of a real control plane stands beside it
#   tools/upstream/kube/e2e.sh lab kube      on both
#   tools/upstream/kube/e2e.sh kube -record  on a real control plane, and record what passed
#   tools/upstream/kube/e2e.sh lab -third 0  every third test, beginning with the first: CI takes them in turn
#
# Builds the suite (and the control plane) once; minutes on a small machine. DROVER names the binary that plays the
# worlds; without it, it is built. The logs of the last run are in target/upstream.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
data=$(mktemp -d)
reports=${REPORTS:-$root/target/upstream/kube}
pids=()
nodes=2
patience=120 # seconds until a world is ready

finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$data"
}
trap finish EXIT

start() { # start WORLD: an API server with ready nodes; its kubeconfig is in $data/WORLD
  local assets=() log="$data/$1.log"
  [ "$1" = lab ] || assets=(--assets "$("$root/tools/kube/build.sh")")
  "$DROVER" lab apiserver --data "$data/$1" --kubelets "$nodes" "${assets[@]}" >"$log" 2>&1 &
  local pid=$!
  pids+=("$pid")
  for ((i = 0; i < patience * 5; i++)); do
    # The last line comes when everything is ready.
    if grep -q '^export KUBECONFIG=' "$log"; then return; fi
    if ! kill -0 "$pid" 2>/dev/null; then break; fi
    sleep 0.2
  done
  cat "$log" >&2
  echo "upstream: the world $1 did not become ready" >&2
  exit 1
}

main() {
  local worlds=() options=()
  while [ $# -gt 0 ]; do
    case $1 in lab | kube) worlds+=("$1") ;; *) options+=("$1") ;; esac
    shift
  done
  [ ${#worlds[@]} -gt 0 ] || worlds=(lab)
  local missing=""
  command -v go >/dev/null || missing=Go
  command -v kubectl >/dev/null || missing="${missing:+$missing and }kubectl"
  if [ -n "$missing" ]; then
    echo "upstream: NOT RUN, for want of $missing: $(grep -c '^\(pass\|fail\) ' "$here/tests.txt") of Kubernetes' own tests" >&2
    return
  fi
  # Ready binaries are those of a control plane alone: the suite is built in any case.
  local suite target
  suite=$(env -u KUBEBUILDER_ASSETS "$root/tools/kube/build.sh" e2e.test)/e2e.test
  if [ -z "${DROVER:-}" ]; then
    (cd "$root" && "${CARGO:-cargo}" build --quiet --package drover)
    target=$(cd "$root" && cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    DROVER=$target/debug/drover
  fi
  local at=()
  for world in "${worlds[@]}"; do
    start "$world"
    at+=(-world "$world=$data/$world/kubeconfig")
  done
  mkdir -p "$reports"
  (cd "$here" && go build -o "$data/runner" .)
  "$data/runner" -binary "$suite" -list "$here/tests.txt" -reports "$reports" "${at[@]}" "${options[@]}"
}
main "$@"
