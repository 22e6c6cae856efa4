#!/usr/bin/env bash
# Runs OpenStack's tempest and prints how many of the tests that pass on real services pass here.
#
#   tools/upstream/openstack/tempest.sh                 on the lab's cloud; what is known of real services stands beside it
#   tools/upstream/openstack/tempest.sh lab real        on both; tools/openstack/up.sh has started the real ones
#   tools/upstream/openstack/tempest.sh lab --only REGEX --workers N
#
# DROVER names the binary that plays the cloud; without it, it is built. Tempest is installed once, into the cache. Ends with
# 1 when a test does not pass of which tests.txt does not say why.
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

worlds=()
while [ $# -gt 0 ] && [[ $1 != -* ]]; do
  worlds+=("$1")
  shift
done

# Ten times faster than life: builds take about a second, and what is in between is still seen.
start_lab() {
  if [ -z "${DROVER:-}" ]; then
    cargo build --quiet --package drover
    DROVER=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug/drover
  fi
  "$DROVER" lab cloud --data "$work/cloud" --speed 10 >"$work/cloud.log" 2>&1 &
  lab=$!
  for _ in $(seq 600); do
    [ -s "$work/cloud/clouds.yaml" ] && return
    kill -0 "$lab" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/cloud.log" >&2
  return 1
}

# The last run of each world stays in the cache: tempest.log and run.log tell why a test failed.
judge() { # judge WORLD CLOUDS_YAML ARGS..
  echo "world $1"
  OS_CLIENT_CONFIG_FILE=$2 "$venv/bin/python" "$here/tempest.py" --dir "$cache/tempest-run-$1" "${@:3}" || failed=1
}

failed=0
real=${OSLAB_DIR:-$cache/openstack}/clouds.yaml
for world in "${worlds[@]:-lab}"; do
  case $world in
    lab)
      start_lab
      judge lab "$work/cloud/clouds.yaml" "$@"
      ;;
    real)
      [ -s "$real" ] || { echo "no real services: tools/openstack/up.sh starts them" >&2; exit 1; }
      judge real "$real" "$@"
      ;;
    *) echo "unknown world $world: lab, real" >&2; exit 2 ;;
  esac
done
exit "$failed"
