"""Choosing: which of the receivers that subscribe to an event get it, by their regions and filters.

Read `choice` first; `failures` counts filters that could not be judged.
"""
