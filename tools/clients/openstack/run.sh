#!/usr/bin/env bash
# Runs one of the foreign clients against a cloud of $OS_CLIENT_CONFIG_FILE and prints what it saw.
#
#   tools/clients/openstack/run.sh sdk|cli|gophercloud CLOUD
#
# What a client needs is installed once, into the cache. Ends with 3 when its language is missing here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/drover
venv=$cache/openstack-clients

# What comes over a network may fail for a moment.
again() { "$@" >&2 || { sleep 5 && "$@" >&2; } || { sleep 30 && "$@" >&2; }; }

case $1 in
  sdk | cli)
    python3 -c 'import ensurepip' 2>/dev/null || exit 3
    # The programs run side by side; one of them installs.
    mkdir -p "$cache"
    exec 9>"$cache/openstack-clients.lock"
    flock 9
    if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
      python3 -m venv --clear "$venv" >&2
      again "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
      cp "$here/requirements.txt" "$venv/requirements.txt"
    fi
    exec 9>&-
    exec "$venv/bin/python" -B "$here/$1.py" "$2"
    ;;
  gophercloud)
    command -v go >/dev/null || exit 3
    cd "$here/../gophercloud"
    again go mod download
    exec go run . "$2"
    ;;
  *)
    echo "unknown client $1: sdk, cli, gophercloud" >&2
    exit 2
    ;;
esac
