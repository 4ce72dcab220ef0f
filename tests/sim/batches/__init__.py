"""Batches across faults: what is checked of them in every run, scenarios, and the mutants that they find."""
