"""The base of all models of custom resources, their rules, names, and fields not known."""
