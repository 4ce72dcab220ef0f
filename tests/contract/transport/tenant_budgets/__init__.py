"""Budgets of tenants: attempts under way on one node."""
