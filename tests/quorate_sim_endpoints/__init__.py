"""Simulated clusters whose agents have their real client endpoints: parking, forwarding, replies.

What clients send and read are bytes; each key's history must be linearizable.
"""
