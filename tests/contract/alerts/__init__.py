"""Events about alerts: how they are published, and who gets them."""
