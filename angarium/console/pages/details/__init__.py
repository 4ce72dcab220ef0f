"""Pages that one opens from the page of a receiver or of an event.

Read `replay` first: it has a form, a preview whose number holds, and a job.
"""
