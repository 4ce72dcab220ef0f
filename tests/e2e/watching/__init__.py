"""Health, metrics and state of a running installation, as an operator reads them."""
