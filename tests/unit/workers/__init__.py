"""Several nodes under one supervisor."""
