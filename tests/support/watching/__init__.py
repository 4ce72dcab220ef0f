"""What watches an installation: rules, dashboard, and a Prometheus that scrapes it."""
