"""Shaping: a receiver gets the part of each JSON body that its transform leaves.

Read `shape` first, which makes the shaped body. It follows the `pointer_trees`, one for each list, and is at
one of the `places` that they lead to. `body_shaper` shapes the bodies of an attempt, large ones in a thread.
"""
