"""Dead letters, and events that are sent again."""
