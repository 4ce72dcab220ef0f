"""Sending events again: replays of settled events, redrives of dead letters, each event exactly once.

Read `plan_lock` first: both are planned under a lock before they send.
"""
