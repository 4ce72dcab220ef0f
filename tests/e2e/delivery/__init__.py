"""Requests as receivers see them: what arrives, in which order, how fast, and with which signature."""
