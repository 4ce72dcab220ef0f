"""A receiver's configuration: what it may say, and how it is read. Pure.

Read `policy` first (all members), then `parsing`; `problems` has the rules that no type can express.
`filters` has the expressions that select events by their bodies; `custom_signature`, `signing_secrets` and
`transform` are members with rules of their own; `secret_places` says where secrets stand, and `credentials`
hides them in texts.
"""
