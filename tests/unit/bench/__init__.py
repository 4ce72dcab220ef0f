"""The bench and the demo."""
