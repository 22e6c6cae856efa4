#!/usr/bin/env bash
# Runs OpenStack's tempest and prints how many of the tests that pass on real services pass here.
#
#   tools/upstream/openstack/tempest.sh                    against the lab's cloud
#   tools/upstream/openstack/tempest.sh --cloud NAME       against a cloud of $OS_CLIENT_CONFIG_FILE, as its administrator
#   ... --only REGEX --workers N                           some of the tests
#
# DROVER names the binary that plays the cloud; without it, it is built. Tempest is installed once, into the cache.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/drover
venv=$cache/tempest

if ! python3 -c 'import ensurepip' 2>/dev/null; then
  echo "tempest was NOT run, $(grep -c '^tempest' "$here/tests.txt") tests: there is no python3 with venv" >&2
  exit 0
fi
# The list of packages lies beside them when all are there.
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
  echo "installing tempest into $venv (once)" >&2
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/requirements.txt"
fi

work=$(mktemp -d)
lab=
end() {
  [ -z "$lab" ] || kill "$lab" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap end EXIT

case " $* " in
  *" --cloud "*) ;;
  *)
    if [ -z "${DROVER:-}" ]; then
      cargo build --quiet --package drover
      DROVER=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug/drover
    fi
    # Ten times faster than life: builds take about a second, and what is in between is still seen.
    "$DROVER" lab cloud --data "$work/cloud" --speed 10 >"$work/cloud.log" 2>&1 &
    lab=$!
    export OS_CLIENT_CONFIG_FILE=$work/cloud/clouds.yaml
    for _ in $(seq 100); do
      [ -s "$OS_CLIENT_CONFIG_FILE" ] && break
      kill -0 "$lab" 2>/dev/null || break
      sleep 0.1
    done
    [ -s "$OS_CLIENT_CONFIG_FILE" ] || { cat "$work/cloud.log" >&2; exit 1; }
    ;;
esac
# The last run stays in the cache: tempest.log and run.log tell why a test failed.
"$venv/bin/python" "$here/tempest.py" --dir "$cache/tempest-run" "$@"
