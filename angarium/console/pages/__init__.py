"""The pages, and what their forms do; each subject has one file.

Read `receiver` first: the others are smaller.

- `configuration`: the configuration of a receiver as a form.
- `settings`: tokens, and the quotas of tenants.
- `signing_in`: with a token, or with a link that holds one.
"""
