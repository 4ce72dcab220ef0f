"""Parts of a delivery that need no network."""
