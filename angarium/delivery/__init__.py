"""The edge to the receivers: one attempt, from the event to the outcome.

Read `sender` first, then `transport` (the seam) and `http1_transport` (our client); `signing` signs.
"""
