"""Trials: what a filter or a transform would have done with the last events. Nothing is sent.

`filter_trial` says which events the receiver would get, and `transform_trial` what it would get of each.
"""
