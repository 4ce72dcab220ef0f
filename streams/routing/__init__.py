"""Routing: a copy of each event for every receiver that subscribes to it.

Read `router` first, then `lanes` (order within a receiver) and `freshness` (how old a configuration may be).
`selection` leaves out the receivers whose region or filter does not want an event.
"""
