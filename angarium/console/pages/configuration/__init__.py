"""The configuration of a receiver as a form.

Read `fields` first: it says which members have a field, and how a form becomes a configuration. `edit` shows
the form, what it would change, and stores that.
"""
