"""The agent process: command line, sockets and turns, peers, probes, and how it ends."""
