"""Speed of the console with very many receivers and attempts."""
