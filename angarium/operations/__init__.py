"""Operations on an installation: put receivers, publish, ask, redrive, examine, repair.

One use case a file. The commands call them.
"""
