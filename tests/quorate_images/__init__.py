"""The images of the Dockerfile: built without a registry, and run beside a test."""
