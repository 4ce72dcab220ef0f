"""NATS itself: one connection, JetStream over it, and requests that cannot hang.

Read `wire` first (the port that the simulator replaces), then `jetstream` and `answers`.
"""
