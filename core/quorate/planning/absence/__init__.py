"""Which agents may be absent: restart, leave, be given up."""
