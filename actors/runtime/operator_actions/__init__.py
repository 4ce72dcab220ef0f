"""Actions of operators on one receiver, each recorded before it is answered. Read `end_deliveries` first.

`ping` sends one request, `resume` ends what holds the receiver back, `skip` gives up the oldest event,
`forget` discards all that wait, and `end_deliveries` ends those of an erased event.
"""
