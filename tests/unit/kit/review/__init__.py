"""Failing tests of a review of the kit: each fails for the reason in its name."""
