#!/bin/bash
# Makes this server a Kubernetes node. May be run again: what is done already is not done twice.
set -euo pipefail

# The SHA-256 that are known beforehand; empty where only the publisher's own file tells.
case "$(uname -m)" in
  x86_64)
    arch=amd64
    kubelet_sha256=@KUBELET_SHA256_AMD64@
    cni_sha256=@CNI_SHA256_AMD64@
    ;;
  aarch64)
    arch=arm64
    kubelet_sha256=@KUBELET_SHA256_ARM64@
    cni_sha256=@CNI_SHA256_ARM64@
    ;;
  *)
    echo "no kubelet is published for $(uname -m)" >&2
    exit 1
    ;;
esac

fetch() {
  curl --fail --location --silent --show-error --proto =https@CACERT@ \
    --connect-timeout 10 --max-time 600 --retry 5 --retry-delay 2 --retry-connrefused \
    --output "$2" "$1"
}

# Takes a URL, a file and a SHA-256. The file appears only when its content is the right one.
download() {
  local sum=$3
  if [ -z "$sum" ]; then
    fetch "$1.sha256" "$2.sha256"
    sum=$(cut -d ' ' -f 1 "$2.sha256")
    rm -f "$2.sha256"
  fi
  fetch "$1" "$2.part"
  if ! echo "$sum  $2.part" | sha256sum --check --status; then
    echo "$1 does not match its SHA-256" >&2
    rm -f "$2.part"
    return 1
  fi
  mv "$2.part" "$2"
}

hostnamectl set-hostname @MACHINE_NAME@
swapoff -a
systemctl restart systemd-modules-load.service
sysctl --system --quiet

@RUNTIME@
mkdir -p /opt/bin /opt/cni/bin /var/lib/drover /etc/kubernetes/manifests
if [ ! -x /opt/cni/bin/loopback ]; then
  download "@CNI_URL@" /var/lib/drover/cni-plugins.tgz "$cni_sha256"
  tar --extract --gzip --file /var/lib/drover/cni-plugins.tgz --directory /opt/cni/bin
  rm -f /var/lib/drover/cni-plugins.tgz
fi
if [ ! -x /opt/bin/kubelet ]; then
  download "@KUBELET_URL@" /var/lib/drover/kubelet "$kubelet_sha256"
  install -m 0755 /var/lib/drover/kubelet /opt/bin/kubelet
  rm -f /var/lib/drover/kubelet
fi

systemctl daemon-reload
systemctl enable --now kubelet.service
touch /var/lib/drover/setup-done
