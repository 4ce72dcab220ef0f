"""The list of receivers, with the health of each: phase, backlog, throughput, and what limits it.

Read `health` first, then `listing` and `throughput`.
"""
