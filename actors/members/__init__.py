"""Members of a receiver's configuration with rules of their own: its secrets, and a signature of its own.

Read `custom_signature` and `signing_secrets` first; `actors.policy` has all members. `allowed_values` says in
words what a value may be.
"""
