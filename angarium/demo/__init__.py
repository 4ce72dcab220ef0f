"""`angarium demo`: eight receivers, a node that is killed, and a verdict from the receivers' own records.

Read `scenario` first, then `verdict`.
"""
