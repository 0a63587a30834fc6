"""The agent process: its command line, sockets and turns, peers, probes, its end."""
