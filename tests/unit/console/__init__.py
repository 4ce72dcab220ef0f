"""The console without NATS: recent values, words, charts, and harmless texts."""
