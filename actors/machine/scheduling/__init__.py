"""Chooses the next step of a receiver. Read `next_step.py` first, then `steps.py` and `view.py`."""
