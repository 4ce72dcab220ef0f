"""The edge to the receivers: one attempt, from the event to the outcome.

Read `sender` first, then `http_exchange` (one request and its answer), `connections` (which addresses may be
reached, and when), `egress` (proxies and TLS profiles) and `http1_transport`, the client that puts them
together; `shaping` removes what the receiver should not get, `formats` makes bodies, and `signing` and
`custom_signing` sign them; `handshake` asks a receiver for the proof that it wants events.
`own_outage` tells the outage of this node from those of receivers.
"""
