"""The tools of these tests, tested: forks act like fresh processes, and each check finds its breach."""
