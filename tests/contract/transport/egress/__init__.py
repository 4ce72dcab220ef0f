"""Proxies and TLS profiles: our own transport against a proxy that does what a test wants."""
