"""A nats-server in memory with the features that `streams` uses: `FakeServer`.

`core` has connections and core NATS; `api` and `direct` answer requests; `stream`, with `store`, `batches`
and `replica`, keeps messages; `consumer`, with `waiting_pulls`, hands them out. `client` is the other end: a
`Wire`.

A sequence is here, in NATS's own word, what the product calls a position.
"""

from tests.sim.server.core import FakeServer

__all__ = ["FakeServer"]
