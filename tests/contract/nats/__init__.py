"""Facts about NATS that we rely on, and our client of it."""
