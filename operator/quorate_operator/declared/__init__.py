"""What users declare on Kubernetes: watched, judged, led, and told of in their status."""
