"""Settings: the tokens of the installation, and what single tenants are allowed.

Read `view` first. `tokens` creates and revokes tokens, `links` makes links that sign in.
"""
