"""Admission of requests: the gate checks their tokens; limits bound how much they hold and publish.

Read `gate` first.
"""
