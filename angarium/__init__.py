"""Angarium meets the world: configuration, commands, the edge to the receivers, and the wiring."""

__version__ = "0.1.0"
