"""Parts of the operations that need no NATS."""
