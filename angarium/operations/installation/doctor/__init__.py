"""The checks of `angarium doctor`, and the alerts that are raised.

Read `examine` first: it makes all checks. Each check gives findings.
"""
