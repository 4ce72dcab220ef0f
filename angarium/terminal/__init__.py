"""The terminal: tables, progress and sentences, and how a command runs until done or interrupted.

Read `output` first.
"""
