"""Actors at work, and their host, over ports that the tests hold."""
