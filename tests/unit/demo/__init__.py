"""The payloads and the verdict of the demo."""
