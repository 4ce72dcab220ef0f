"""The way to a receiver through a proxy, and with a TLS profile."""
