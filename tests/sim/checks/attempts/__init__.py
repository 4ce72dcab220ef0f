"""Checks of attempts: their numbers, how many are in flight at a time, and which are repeated."""
