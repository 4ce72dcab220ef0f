"""Operations on an installation: put receivers, publish, ask, redrive, examine, repair.

Read `receivers` first. The commands call them; none knows a terminal.
"""
