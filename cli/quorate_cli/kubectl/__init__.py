"""`kubectl quorate`: the same views and requests on Kubernetes, from custom resources alone."""
