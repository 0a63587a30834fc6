"""Rows that are lost: rebuilt from the agents, or begun again over empty stores."""
