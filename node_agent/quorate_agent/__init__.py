"""The agent: keeps copies, orders updates where it is primary, speaks to clients and peers."""
