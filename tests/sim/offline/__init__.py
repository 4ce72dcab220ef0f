"""Receivers that are offline, in a simulated world."""
