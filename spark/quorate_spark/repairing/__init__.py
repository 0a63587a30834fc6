"""Repairs keys whose copies differ: the decision about each, the plan, its execution."""
