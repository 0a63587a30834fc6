"""The limit of what a job reads of each agent: its bounds, and the option that names it."""

MIB = 1024 * 1024
MIB_PER_SECOND_MAX = 10_000
"""More than the network of an agent has."""
MAX_MIB_PER_SECOND_PER_AGENT = "--max-mib-per-second-per-agent"
"""The option of programs that read copies, and of commands."""
