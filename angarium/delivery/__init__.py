"""The edge to the receivers: one attempt, from the event to the outcome.

Read `sender` first, then `http_exchange` (one request and its answer), `connections` (who may be reached, and
when), `egress` (the paths there: proxies and TLS profiles) and `http1_transport`, the client that puts them
together; `shaping` takes out what is not for the receiver, `formats` makes bodies, and `signing` and
`custom_signing` sign them; `handshake` asks a receiver for the proof that it wants events.
`own_outage` tells the outage of this node from those of receivers.
"""
