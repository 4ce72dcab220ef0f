"""Requests of operators about one receiver, each on record before it is answered: `ping`, `skip`, `erase`."""
