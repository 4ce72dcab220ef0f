"""Handshakes as they are made: one at a time, recorded before and after. Read `handshaking`."""
