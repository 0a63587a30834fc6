"""Deletion of declared objects: when one may go, and how it is known that one is gone."""
