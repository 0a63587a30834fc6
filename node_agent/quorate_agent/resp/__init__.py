"""The commands that clients send and the replies they get, free of sockets: RESP2 and RESP3."""
