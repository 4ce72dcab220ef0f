"""Receivers that are offline: the pings that they get in place of events, and their return."""
