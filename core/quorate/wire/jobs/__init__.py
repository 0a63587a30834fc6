"""Validations and repairs, of which each object is one Job; what all kinds of Jobs share."""
