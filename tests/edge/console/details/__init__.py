"""Pages that one opens from the page of a receiver or of an event."""
