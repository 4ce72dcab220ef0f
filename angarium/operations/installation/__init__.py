"""The installation: set it up, see its nodes, examine its health, repair it.

Read `examine` first: it is what `angarium doctor` looks at. `raised_alerts` lists the alerts about receivers.
"""
