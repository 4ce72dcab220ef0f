"""Requests as they come: headers, bodies and conditions, read within bounds.

Read `bodies` first.
"""
