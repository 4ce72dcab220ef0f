"""Angarium remembers: the only place that knows NATS."""
