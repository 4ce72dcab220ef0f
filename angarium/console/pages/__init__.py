"""The pages, and what their forms do; each subject has one file.

Read `receiver` first: the others are smaller.

- `configuration`: the configuration of a receiver as a form.
- `details`: what one opens from the pages of a receiver and of an event.
- `settings`: tokens, and the quotas of tenants.
- `signing_in`: with a token, or with a link that holds one.
"""
