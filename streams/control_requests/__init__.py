"""Requests to nodes from any client of NATS, with a bounded cost for the node.

Read `requests` first.
"""
