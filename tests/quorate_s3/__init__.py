"""A server that takes the part of S3: moto's, in a process and a folder of its own."""
