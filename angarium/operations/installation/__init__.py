"""The installation: set it up, see its nodes, examine its health, repair it.

Read `examine` first: it is what `angarium doctor` looks at. `alerts` does the same for the HTTP API.
"""
