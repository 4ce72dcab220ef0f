"""The console without NATS: cached values, words, charts, and harmless texts."""
