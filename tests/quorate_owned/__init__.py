"""A managed cluster on an API server in memory, and its pods as a kubelet would tell of them."""
