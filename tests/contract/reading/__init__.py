"""Reading of deliveries: by consumers, and from a backlog."""
