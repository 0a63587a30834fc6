"""The commands that clients send and the replies they get, without sockets: RESP2 and RESP3."""
