"""Tests of the test tools: forks act like fresh processes, and each check finds its breach."""
