"""The watch over alerts."""
