systemctl disable --now docker.service docker.socket || true
systemctl enable containerd.service
systemctl restart containerd.service
