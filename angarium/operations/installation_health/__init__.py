"""The health of an installation: what `angarium doctor` looks at, and the room that it has.

Read `examine` first.
"""
