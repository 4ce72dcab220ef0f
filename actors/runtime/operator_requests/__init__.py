"""Requests of operators about one receiver, each on record before it is answered.

`ping` sends one request, `skip` gives up the oldest event, `end_deliveries` ends those of an erased event.
"""
