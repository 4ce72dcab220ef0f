"""Routing of events to the receivers that subscribe."""
