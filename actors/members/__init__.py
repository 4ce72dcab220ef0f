"""Members of a receiver's configuration with rules of their own: its secrets, and a signature of its own.

`actors.policy` has all members; `allowed_values` says in words what each may be.
"""
