"""Whole processes: nats-server, nodes and commands, a folder for each subject."""
