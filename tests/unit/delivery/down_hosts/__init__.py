"""Hosts that cannot be connected to, and the turns of their receivers."""
