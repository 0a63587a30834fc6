"""A whole cluster in one thread: the real core between a fake network, fake disks and fake clocks.

`python -m quorate_sim SEED [--trace]` replays one seed.  Everything a run does follows from its
seed, so a failure is repeated by its number.  docs/testing.md tells how to read a trace.
"""
