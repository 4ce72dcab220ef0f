"""Work of a node for the whole installation: `maintenance` makes room, `eraser` erases events on request.

`erasure_turns` says whose request comes next. Read `maintenance` first.
"""
