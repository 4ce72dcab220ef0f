"""Showing: templates, answers, and texts from outside in a harmless form.

Read `harmless` first: everything that a template shows goes through it.
"""
