"""The progress bar: drawn only if a person watches."""

import pytest

from angarium.terminal import output
from angarium.terminal import progress as progress_lines
from angarium.terminal.progress import progress


def test_in_a_pipe_a_line_comes_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress("redriving") as on_progress:
        on_progress(1, 2)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(progress_lines, "LINE_EVERY_S", 0.0)
    with progress("redriving") as on_progress:
        on_progress(1, 2)
    assert capsys.readouterr() == ("", "redriving: 1 of 2\n")


def test_a_terminal_shows_done_and_total(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "stderr_can_redraw", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("redriving") as on_progress:
        on_progress(17, 42)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "redriving" in shown.err
    assert "17/42" in shown.err


def test_before_the_total_is_known_it_shows_no_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "stderr_can_redraw", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("replaying"):
        pass
    shown = capsys.readouterr().err
    assert "replaying" in shown
    assert "/?" not in shown


def test_progress_is_drawn_if_a_terminal_reads_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only standard error decides: standard output may be a terminal all the same."""
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    with progress("redriving") as on_progress:
        on_progress(1, 2)
    assert capsys.readouterr() == ("", "")
