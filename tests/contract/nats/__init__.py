"""What we rely on in NATS, and our client of it."""
