"""Requests to nodes from any client of NATS, bounded in what they may cost a node.

Read `requests` first.
"""
