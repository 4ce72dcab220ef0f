"""Simulated processes in virtual time, the network between them, and the receivers."""
