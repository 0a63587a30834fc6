"""Real Kubernetes nodes on this machine, for tests: kubelets, containerd and pods, as root."""
