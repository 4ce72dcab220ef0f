"""Pages of the console with forms of their own: links that sign in, the settings, a configuration."""
