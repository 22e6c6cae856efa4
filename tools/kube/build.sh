#!/usr/bin/env bash
# Builds a real Kubernetes control plane from its Go modules, once per version, and prints the folder that holds it.
#
#   tools/kube/build.sh              etcd, kube-apiserver, kube-controller-manager, kube-scheduler
#   tools/kube/build.sh e2e.test     Kubernetes' own end-to-end tests
#
# KUBEBUILDER_ASSETS (a folder with ready binaries) wins when set. Versions are those of the go.mod files beside this script.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

version_of() { (cd "$here/$1" && go list -m -f '{{.Version}}' "$2"); }

# Everything under one name per version, so that two versions live side by side and a finished file is never built again.
build() { # build MODULE_FOLDER PACKAGE NAME LDFLAGS
  [ -x "$cache/$3" ] && return
  echo "building $3 $kube (once; minutes on a small machine)" >&2
  local part="$cache/.$3.$$"
  case $2 in
    */test/e2e) (cd "$here/$1" && CGO_ENABLED=0 go test -c -trimpath -ldflags "$4" -o "$part" "$2") ;;
    *) (cd "$here/$1" && CGO_ENABLED=0 go build -trimpath -ldflags "$4" -o "$part" "$2") ;;
  esac
  mv "$part" "$cache/$3"
}

main() {
  if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ $# -eq 0 ]; then
    echo "$KUBEBUILDER_ASSETS"
    return
  fi
  command -v go >/dev/null || { echo "no Go on PATH: a real control plane can't be built" >&2; exit 3; }
  kube=$(version_of control-plane k8s.io/kubernetes)
  cache="${XDG_CACHE_HOME:-$HOME/.cache}/drover/kube/$kube"
  mkdir -p "$cache"
  local minor=${kube#v1.}; minor=${minor%%.*}
  # Without these a server calls itself v0.0.0 and clients refuse it.
  local stamp=k8s.io/component-base/version
  local flags="-s -w -X $stamp.gitVersion=$kube -X $stamp.gitMajor=1 -X $stamp.gitMinor=$minor"
  if [ "${1:-}" = e2e.test ]; then
    build control-plane k8s.io/kubernetes/test/e2e e2e.test "$flags"
  else
    build etcd go.etcd.io/etcd/server/v3 etcd "-s -w"
    for command in kube-apiserver kube-controller-manager kube-scheduler; do
      build control-plane "k8s.io/kubernetes/cmd/$command" "$command" "$flags"
    done
  fi
  echo "$cache"
}
main "$@"
