"""The HTTP API as its clients meet it: real NATS, real sockets."""
