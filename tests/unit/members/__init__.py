"""Members of a receiver's configuration that have rules of their own."""
