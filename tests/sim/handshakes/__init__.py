"""Handshakes across crashes: what is checked in every run, scenarios, and the mutants that they find."""
