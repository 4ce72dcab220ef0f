"""Texts of `angarium fleet` about nodes that need attention."""

from angarium.cli.installation.fleet import outage_text


def test_a_node_that_reaches_no_host_is_named_with_the_remedy() -> None:
    text = outage_text("one\x1b")
    assert text.startswith(r"one\x1b can connect to no host")
    assert text.endswith("check its network and DNS")
