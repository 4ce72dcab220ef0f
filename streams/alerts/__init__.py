"""Events about alerts: how a node publishes them. Read `alert_events`, its only file."""
