"""What the operator remembers of a zone's last 24 hours, for its status and for reports."""
