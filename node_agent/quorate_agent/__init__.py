"""The agent: stores copies, orders updates of the partitions it is primary of, serves clients."""
