"""Trials: what a filter or a transform would have done with the last events. Nothing is sent.

Read `filter_trial` first, which says what events the receiver would get. `transform_trial` shows their bodies
as it would get them.
"""
