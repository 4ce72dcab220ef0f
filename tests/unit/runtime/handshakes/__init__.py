"""Handshakes as they are made."""
