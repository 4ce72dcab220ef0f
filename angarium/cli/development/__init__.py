"""The commands to try and to measure Angarium on one machine: `dev`, `listen`, `demo`, `bench`.

Read `dev` first.
"""
