"""What NetworkPolicies allow, as the API reference defines it; no network plugin is needed."""
