"""Receivers declared in a file: applied to the installation, or exported from it.

Read `declared` first: it parses a file.
"""
