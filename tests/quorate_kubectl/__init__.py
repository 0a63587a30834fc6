"""`kubectl quorate` on canned objects of an API server in the test's own process."""
