"""Timed events: checks of every run, scenarios, mutants."""
