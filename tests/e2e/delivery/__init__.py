"""Requests as their receivers see them: what arrives, in which order, how fast, and signed by whom."""
