"""A nats-server in memory, as far as `streams` uses one: `FakeServer`."""

from tests.sim.server.core import FakeServer

__all__ = ["FakeServer"]
