"""Choosing: which of the receivers that subscribe to an event get it, by their regions and filters.

Read `choice` first; `sending_rules` has the rules of all receivers by tenant, and `failures` counts filters
that could not be judged.
"""
