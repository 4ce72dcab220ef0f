"""What people see: tables, progress and sentences, and how a command runs until it is done or interrupted.

Read `output` first.
"""
