"""Settings, logs and quantities, as `angarium` reads and writes them."""
