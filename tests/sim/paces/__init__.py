"""Learnt paces in a simulated world."""
