"""Requests from any client of NATS to a node, at a bounded cost for the node.

Read `requests` first.
"""
