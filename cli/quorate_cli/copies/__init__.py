"""Copies of a zone: asked, validated, damaged on purpose."""
