"""Plan which nodes should own each partition, and the safe steps that lead a row there."""
