"""Failures of servers and nodes of a fleet on three nats-servers, one after the other; `make chaos` sums up.

Read `test_servers` first. `conftest` makes the fleet and its load, and prints the table.
"""
