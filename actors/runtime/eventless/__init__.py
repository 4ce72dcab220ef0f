"""Requests without an event, recorded before and after. Read `handshaking`, then `pinging`."""
