"""The pure rules of alerts."""
