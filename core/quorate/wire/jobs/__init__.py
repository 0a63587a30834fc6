"""The kinds of which each object is one Job, the schedules of these, and the results of pods."""
