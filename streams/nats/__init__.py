"""NATS itself: one connection, JetStream over it, and answers that cannot hang.

Read `wire` first (the port that the simulator replaces), then `jetstream` and `answers`.
"""
