"""The report of a validation as one HTML page, and the earlier reports of its folder."""
