"""Crashes, losses and shortages under load: what is lost, repeated or late afterwards."""
