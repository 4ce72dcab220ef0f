"""The work that one evaluation may take. Nothing in it can be stopped from outside, so it counts its steps.

A step is a tenth or two of a microsecond: one node of an expression, for one element. Whatever takes time in
proportion to a value spends its steps before it begins, and whatever is built is built step by step. So the
bound on steps bounds the time and the memory.
"""

from actors.errors import AngariumError

STEPS_MAX = 10_000
"""Steps of one filter over one body: some 2 ms at most."""
EXPRESSION_LEVELS_MAX = 32
"""Depth of an expression, and of the values that it compares."""
CHARACTERS_A_STEP = 64
"""Characters that are searched in one step."""
COMPARED_A_STEP = 1024
"""Comparisons of characters in one step, where a search makes many for each character."""
STEPS_A_PAIR = 2
"""Steps for two elements that are compared."""
STEPS_A_CALL = 2
"""Steps for a call of a function, and for an array that is built, besides those of its parts."""
STEPS_AN_OBJECT = 4
"""Steps for an object that is built, besides those of its parts."""
BITS_A_STEP = 512
"""Bits of a number that are added in one step."""


class TooCostly(AngariumError):
    """An evaluation would take more steps than it may."""


class FilterFailed(AngariumError):
    """An expression cannot be applied to this body; the text says why."""


class Work:
    """The steps that an evaluation may still take."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEPS_MAX

    def spend(self, steps: int) -> None:
        """Take so many steps. Raises TooCostly."""
        self.left -= steps
        if self.left < 0:
            raise TooCostly("more steps than a filter may take")
