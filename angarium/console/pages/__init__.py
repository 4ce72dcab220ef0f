"""The pages, and what their forms do; each subject has one file.

Read `receiver` first: the others are smaller. `details` has what one opens from the pages of a receiver and
of an event.
"""
