"""Commands of a pipeline that are executed together, and a short path for a single one."""
