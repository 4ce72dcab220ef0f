"""The console over a real nats-server: without a browser, and in Chromium."""
