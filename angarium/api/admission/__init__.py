"""Admission of requests: the gate checks their tokens; limits bound what they hold and publish together.

Read `gate` first.
"""
