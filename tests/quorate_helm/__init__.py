"""Helm for tests of the chart: the programs, built from their Go modules, and how they are run."""
