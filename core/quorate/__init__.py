"""The pure core of Quorate: facts, plans and protocol.  No I/O, clock, randomness or threads."""
