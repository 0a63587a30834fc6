"""Objects of which each is one run with a result: recoveries, validations, and their schedules."""
