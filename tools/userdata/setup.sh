#!/usr/bin/env bash
# Makes the judges of user-data, once per version, and prints the folder that holds them: ignition (Ignition's own validator),
# cloud-init (Debian's, for `cloud-init schema`) and shellcheck. Nothing is installed on the machine itself.
#
#   tools/userdata/setup.sh         make all that is missing
#   tools/userdata/setup.sh where   only print the folder
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# One folder per state of what pins the versions, so that an old checkout beside a new one does not undo its work.
pins() { cat "$here"/ignition/{go.mod,go.sum,main.go} "$here"/{requirements.txt,setup.sh}; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/drover/userdata/$(pins | sha256sum | cut -c1-12)

make_ignition() {
  [ -x "$cache/ignition" ] && return
  (cd "$here/ignition" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$cache/.ignition.$$" .)
  mv "$cache/.ignition.$$" "$cache/ignition"
}

# Unpacks a package of this Debian beside the others.
unpack() { # unpack NAME
  local part="$cache/.$1.$$"
  mkdir -p "$part"
  (cd "$part" && apt-get --quiet --quiet download "$1" >&2)
  dpkg -x "$part"/*.deb "$cache/root"
  rm -rf "$part"
}

make_shellcheck() {
  [ -x "$cache/shellcheck" ] && return
  unpack shellcheck
  ln -sf root/usr/bin/shellcheck "$cache/shellcheck"
}

make_cloud-init() {
  [ -x "$cache/cloud-init" ] && return
  unpack cloud-init
  rm -rf "$cache/venv"
  python3 -m venv "$cache/venv"
  "$cache/venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt" >&2
  cat >"$cache/.cloud-init.$$" <<SCRIPT
#!/bin/sh
PYTHONPATH=$cache/root/usr/lib/python3/dist-packages exec $cache/venv/bin/python -m cloudinit.cmd.main "\$@"
SCRIPT
  chmod +x "$cache/.cloud-init.$$"
  mv "$cache/.cloud-init.$$" "$cache/cloud-init"
}

parts=(ignition cloud-init shellcheck) kind=", a judge of user-data"
needs() { if [ "$1" = ignition ]; then echo go; else echo apt-get; fi; }
. "$here/../parts.sh"
