"""Rendering: templates, responses, and texts from outside in a harmless form.

Read `escaped_text` first: everything that a template shows goes through it.
"""
