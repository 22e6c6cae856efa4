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
else
  # Four at a time: never more than a dozen servers, and the services share this machine with the tests.
  cargo test --package drover-openstack --test real -- --test-threads 4
  cargo test --package drover-lab --test openstack recorded -- --test-threads 1
  cargo test --package drover --package drover-sim --test os_cloud --test openstack -- real_openstack no_death
fi
