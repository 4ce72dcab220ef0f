"""Events and dead letters that are sent again."""
