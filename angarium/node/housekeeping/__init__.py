"""Work of a node for the whole installation: `maintenance` makes room, `eraser` erases events on request.

Read `maintenance` first. `erasure_turns` says whose request comes next, and `erasure_steps` how it is done.
"""
