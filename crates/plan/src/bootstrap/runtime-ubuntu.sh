sed -i '/^[^#].*[[:space:]]swap[[:space:]]/s/^/#/' /etc/fstab
systemctl disable --now ufw.service || true
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5)
"${apt[@]}" update
"${apt[@]}" install --no-install-recommends ca-certificates ceph-common cifs-utils conntrack \
  containerd curl e2fsprogs ebtables ethtool ipset iptables ipvsadm kmod nfs-common socat util-linux
apt-mark hold containerd
systemctl enable containerd.service
systemctl restart containerd.service
