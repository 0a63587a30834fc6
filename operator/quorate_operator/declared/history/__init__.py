"""The last 24 hours of a zone as the operator remembers them, for its status and for reports."""
