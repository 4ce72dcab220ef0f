"""The commands of `angarium`, one a file; what takes long to import is imported where it is used.

Read `main` first. A command reads its flags, calls an operation (`angarium.operations`) and prints what it
returns.
"""
