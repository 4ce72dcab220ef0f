"""Decides the next step of a receiver.

Read `rules.py` first (the priorities), then `next_step.py`, `steps.py` and `view.py`.
"""
