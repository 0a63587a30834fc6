"""One copy of one partition: its rows and log, how it is filled, what it does as primary."""
