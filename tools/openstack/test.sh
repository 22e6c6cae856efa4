#!/usr/bin/env bash
# Runs Drover against real OpenStack services, which it starts, and stops unless they ran before.
#
#   tools/openstack/test.sh          everything
#   tools/openstack/test.sh record   only asks the services again what tests/openstack/cases of the lab say of them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export OSLAB_DIR=${OSLAB_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/drover/openstack}
[ -e "$OSLAB_DIR/run/nova.pid" ] || trap '"$here/down.sh"' EXIT
"$here/up.sh"
export DROVER_TEST_CLOUDS=$OSLAB_DIR/clouds.yaml RUST_BACKTRACE=0
cd "$here/../.."
if [ "${1:-}" = record ]; then
  DROVER_RECORD=1 cargo test --package drover-lab --test openstack recorded -- --test-threads 1
  exit
fi

inventory() { (. "$OSLAB_DIR/env.sh" && python -m oslab.inventory "$OSLAB_DIR") >"$OSLAB_DIR/$1"; }
say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }

inventory before.txt
# Four at a time: never more than a dozen servers, and the services share this machine with the tests.
cargo test --package drover-openstack --test real -- --test-threads 4
say "Drover's own calls"
cargo test --package drover-lab --test openstack recorded -- --test-threads 1
say "recorded calls"
# The same clients saw the same on these services when their transcripts were written.
DROVER_OS_CLOUD=drover OS_CLIENT_CONFIG_FILE=$OSLAB_DIR/clouds.yaml cargo test --package drover-lab --test openstack_clients
say "other clients"
cargo test --package drover --package drover-sim --test os_cloud --test openstack -- real_openstack no_death
say "the demo, and death at any call"

# What was there is there, as it was, and nothing else is.
inventory after.txt
if ! diff "$OSLAB_DIR/before.txt" "$OSLAB_DIR/after.txt"; then
  echo "left behind (>), or gone or touched (<)" >&2
  exit 1
fi
say "nothing left behind, nothing touched; the services use $(
  for file in "$OSLAB_DIR"/run/*.pid; do cut -d' ' -f1 "$file"; done |
    xargs -I{} awk '/VmRSS/ { print $2 }' /proc/{}/status | awk '{ sum += $1 } END { printf "%d MiB", sum / 1024 }'
)"
