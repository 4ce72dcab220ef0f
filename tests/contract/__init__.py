"""Contracts of the rooms with NATS, SQL and HTTP, on real servers and on the one in memory."""
