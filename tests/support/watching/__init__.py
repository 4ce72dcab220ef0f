"""The rules and the dashboard that watch an installation, and a Prometheus that scrapes it."""
