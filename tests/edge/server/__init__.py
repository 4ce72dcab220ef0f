"""The embedded nats-server and the connections to it."""
