"""Regions and filters across faults: what is checked in every run, scenarios, and their mutants."""
