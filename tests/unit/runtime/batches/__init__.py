"""Tests of batches from the mailbox to the record."""
