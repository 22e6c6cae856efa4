#!/usr/bin/env bash
# Builds the foreign clients that judge the lab, once per version, and prints the folder that holds them: kubectl, helm,
# go (the program in go/) and venv (Python with the packages of python/requirements.txt).
#
#   tools/clients/setup.sh          make all that is missing
#   tools/clients/setup.sh where    only print the folder
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# One folder per state of what pins the versions, so that an old checkout beside a new one does not undo its work.
pins() { cat "$here"/{go,helm}/go.{mod,sum} "$here/python/requirements.txt" "$here/../kube/control-plane/go.mod"; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/drover/clients/$(pins | sha256sum | cut -c1-12)

# Two packages at a time: programs of this size need half a gigabyte each to be linked.
build() { # build MODULE PACKAGE NAME LDFLAGS
  (cd "$1" && CGO_ENABLED=0 go build -p 2 -trimpath -ldflags "-s -w $4" -o "$cache/.$3.$$" "$2")
  mv "$cache/.$3.$$" "$cache/$3"
}

make_kubectl() {
  [ -x "$cache/kubectl" ] && return
  local module=$here/../kube/control-plane stamp=k8s.io/component-base/version version minor
  version=$(cd "$module" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
  minor=$(cut -d. -f2 <<<"$version")
  build "$module" k8s.io/kubernetes/cmd/kubectl kubectl \
    "-X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=$minor"
}

make_helm() { [ -x "$cache/helm" ] || build "$here/helm" helm.sh/helm/v3/cmd/helm helm ""; }

# The only program whose source is Drover's own: Go knows what of it has changed.
make_go() { build "$here/go" . go ""; }

make_venv() {
  [ -e "$cache/venv/complete" ] && return
  rm -rf "$cache/venv"
  python3 -m venv "$cache/venv"
  "$cache/venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/python/requirements.txt" >&2
  touch "$cache/venv/complete"
}

parts=(kubectl helm go venv) kind=" of the foreign clients"
needs() { if [ "$1" = venv ]; then echo python3; else echo go; fi; }
. "$here/../parts.sh"
