#!/usr/bin/env bash
# Stops what up.sh started, and nothing else. --wipe also drops databases, images and logs; what was installed stays.
set -euo pipefail
OSLAB_DIR=${OSLAB_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/drover/openstack}
run=$OSLAB_DIR/run
[ -d "$run" ] || exit 0
exec 9>"$OSLAB_DIR/lock"
flock 9

ours() { [ -n "$2" ] && [ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20)" = "$2" ]; }

# Each was started as the leader of its own process group.
stop() { # NAME..
  local name pid start
  for name in "$@"; do
    read -r pid start 2>/dev/null <"$run/$name.pid" && ours "$pid" "$start" && kill -TERM -- "-$pid" || true
  done
  for name in "$@"; do
    read -r pid start 2>/dev/null <"$run/$name.pid" || continue
    for _ in $(seq 150); do
      ours "$pid" "$start" || break
      sleep 0.1
    done
    ! ours "$pid" "$start" || kill -KILL -- "-$pid"
    rm -f "$run/$name.pid"
  done
}

stop nova cinder neutron glance placement keystone
stop database
if [ "${1:-}" = --wipe ]; then
  rm -rf "$OSLAB_DIR"/{state,log,run,etc,lib,clouds.yaml}
fi
