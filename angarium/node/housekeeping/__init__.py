"""Work of a node for the whole installation: `maintenance` makes room, `eraser` erases events on request."""
