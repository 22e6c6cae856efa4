#!/bin/bash
# Makes this server a Kubernetes node. May be run again: what is done already is not done twice.
set -euo pipefail

case "$(uname -m)" in
  x86_64) arch=amd64 ;;
  aarch64) arch=arm64 ;;
  *) echo "no kubelet is published for $(uname -m)" >&2; exit 1 ;;
esac

# Takes a URL and a file. The file appears only when its SHA-256 is the published one.
download() {
  local curl=(curl --fail --location --silent --show-error
    --connect-timeout 10 --max-time 600 --retry 5 --retry-delay 2 --retry-connrefused)
  "${curl[@]}" --output "$2.sha256" "$1.sha256"
  "${curl[@]}" --output "$2.part" "$1"
  if ! echo "$(cut -d ' ' -f 1 "$2.sha256")  $2.part" | sha256sum --check --status; then
    echo "$1 does not match its SHA-256" >&2
    rm -f "$2.part" "$2.sha256"
    return 1
  fi
  rm -f "$2.sha256"
  mv "$2.part" "$2"
}

hostnamectl set-hostname @MACHINE_NAME@
swapoff -a
systemctl restart systemd-modules-load.service
sysctl --system --quiet

@RUNTIME@
mkdir -p /opt/bin /opt/cni/bin /var/lib/drover /etc/kubernetes/manifests
if [ ! -x /opt/cni/bin/loopback ]; then
  download "@CNI_URL@" /var/lib/drover/cni-plugins.tgz
  tar --extract --gzip --file /var/lib/drover/cni-plugins.tgz --directory /opt/cni/bin
  rm -f /var/lib/drover/cni-plugins.tgz
fi
if [ ! -x /opt/bin/kubelet ]; then
  download "@KUBELET_URL@" /var/lib/drover/kubelet
  install -m 0755 /var/lib/drover/kubelet /opt/bin/kubelet
  rm -f /var/lib/drover/kubelet
fi

systemctl daemon-reload
systemctl enable --now kubelet.service
touch /var/lib/drover/setup-done
