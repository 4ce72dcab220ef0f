"""Problems: errors that a client prints are one line, without control characters."""

from angarium.api.problems import ProblemRaised


def test_a_detail_is_one_line_without_control_characters() -> None:
    refused = ProblemRaised(422, "invalid", "no type\x1b[2J\n  of that \x00 name\u202e")
    assert refused.problem.detail == "no type [2J of that name"
