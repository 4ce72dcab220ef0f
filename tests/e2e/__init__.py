"""Whole processes: nats-server, nodes and commands, each folder about one subject."""
