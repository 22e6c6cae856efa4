#!/usr/bin/env bash
# Runs Drover against real OpenStack services, which it starts, and stops unless they ran before.
#
#   tools/openstack/test.sh          everything
#   tools/openstack/test.sh record   only asks the services again what tests/openstack/cases of the lab say of them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export OSLAB_DIR=${OSLAB_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/drover/openstack}
declare -A parts # the servers of each that runs, by its process
keep=$([ -e "$OSLAB_DIR/run/nova.pid" ] && echo keep || true)
end() {
  for part in "${!parts[@]}"; do kill -TERM -- "-$part" 2>/dev/null || true; done
  [ -n "$keep" ] || "$here/down.sh"
}
trap end EXIT
"$here/up.sh"
export DROVER_TEST_CLOUDS=$OSLAB_DIR/clouds.yaml RUST_BACKTRACE=0
cd "$here/../.."
if [ "${1:-}" = record ]; then
  DROVER_RECORD=1 cargo test --package drover-lab --test openstack recorded
  exit
fi

inventory() { (. "$OSLAB_DIR/env.sh" && python -m oslab.inventory "$OSLAB_DIR") >"$OSLAB_DIR/$1"; }
say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }

# Most of what is tested waits: parts run side by side, each in a process group of its own, with at most 50 servers at a time.
set -m
failed=0 servers=0
part() { # SERVERS WHAT COMMAND..: begins as soon as there is room for so many servers
  while [ $((servers + $1)) -gt 50 ]; do ended; done
  (
    log="$OSLAB_DIR/log/test $2.out" failed=0 began=$SECONDS
    "${@:3}" >"$log" 2>&1 || failed=1
    grep -E '^NOT RUN|^test result|[0-9] s$|^[0-9]+ exchanges' "$log" || true
    [ $failed = 0 ] || cat "$log" >&2
    say "$2: $((SECONDS - began)) s$([ $failed = 0 ] || echo ', FAILED')"
    exit $failed
  ) &
  parts[$!]=$1 servers=$((servers + $1))
}
ended() { # waits for one of them
  local pid
  while sleep 1; do
    for pid in "${!parts[@]}"; do
      if ! kill -0 "$pid" 2>/dev/null; then
        wait "$pid" || failed=1
        servers=$((servers - parts[$pid]))
        unset "parts[$pid]"
        return
      fi
    done
  done
}

# One choice of packages for all: each other one would be built anew.
packages=(--package drover --package drover-lab --package drover-openstack --package drover-sim)
tests() { cargo test "${packages[@]}" --test "$1" -- "${@:2}"; }
clients() { DROVER_OS_CLOUD=drover OS_CLIENT_CONFIG_FILE=$OSLAB_DIR/clouds.yaml tests openstack_clients; }

cargo test --no-run "${packages[@]}" --test real --test os_cloud --test openstack --test openstack_clients
say "built"
inventory before.txt
part 18 "death while creating" tests openstack no_death_while_creating --nocapture
part 18 "death while deleting" tests openstack no_death_while_deleting --nocapture
# The same clients saw the same on these services when their transcripts were written.
part 4 "other clients" clients
part 10 "recorded calls" tests openstack recorded --nocapture
part 19 "the demo" tests os_cloud real_openstack --nocapture
part 12 "Drover's own calls" tests real --test-threads 6
while [ ${#parts[@]} -gt 0 ]; do ended; done

# What was there is there, as it was, and nothing else is.
inventory after.txt
if ! diff "$OSLAB_DIR/before.txt" "$OSLAB_DIR/after.txt"; then
  echo "left behind (>), or gone or touched (<)" >&2
  failed=1
fi
used() { # the services' MiB of memory, and seconds of processors
  local pid ticks
  ticks=$(getconf CLK_TCK)
  for file in "$OSLAB_DIR"/run/*.pid; do
    read -r pid _ <"$file"
    for pid in $(pgrep -g "$pid"); do
      echo "$(awk '/VmRSS/ { print $2 }' "/proc/$pid/status") $(sed 's/.*) //' "/proc/$pid/stat" | cut -d' ' -f12,13)"
    done
  done | awk -v ticks="$ticks" '{ kib += $1; all += $2 + $3 } END { printf "%d MiB and %d s of processor", kib / 1024, all / ticks }'
}
say "the services used $(used) since they started"
[ $failed = 0 ] || exit 1
say "nothing left behind, nothing touched"
