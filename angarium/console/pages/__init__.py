"""The pages, and what their forms do; each subject has one file.

Read `receiver` first: the others are smaller.
"""
