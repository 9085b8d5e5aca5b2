"""The chapter on a deviating server says what its record says."""

from coterie.pages.blocks import Footer, Page
from coterie.pages.deviation import DeviationTable, deviation_section, deviation_verdict
from coterie.pages.render import render

IMAGE = [[[0], [255]], [[128], [7]]]
RECOVERED = {
    "outcome": "recovered",
    "error": 3e-13,
    "correlation": 1.0,
    "psnr": 21.0,
    "image": IMAGE,
    "reason": "so",
}
NOISE = {"outcome": "noise", "error": 1e6, "correlation": 0.01, "psnr": 6.0, "image": IMAGE, "reason": "masks"}
REFUSED = {
    "outcome": "refused",
    "error": None,
    "correlation": None,
    "psnr": None,
    "image": None,
    "reason": "no, said ana",
}


def attempt(attack, protocol, sealed, what):
    return {"attack": attack, "protocol": protocol, "sealed": sealed, **what}


RECORD = {
    "users": 12,
    "privacy": 4,
    "original": IMAGE,
    "attempts": [
        attempt("loses a user", "secagg+", False, RECOVERED),
        attempt("loses a user", "secagg+", True, NOISE),
        attempt("asks a part", "secagg+", False, RECOVERED),
        attempt("asks a part", "secagg+", True, REFUSED),
    ],
}  # fmt: skip


def test_the_table_has_a_row_for_each_attack_and_a_column_for_each_setting():
    """Outcomes stand where they belong, with their numbers."""
    table = DeviationTable(RECORD)
    assert table.columns == ("secagg+, no seal", "secagg+, sealed")
    assert list(table.rows()) == [
        ("loses a user", "recovered, error 3e-13", "noise, correlation 0.01"),
        ("asks a part", "recovered, error 3e-13", "refused"),
    ]
    assert table.refusals() == {"asks a part": "no, said ana"}


def test_the_verdict_counts_and_does_not_presume():
    """An attack that came through would be counted as such."""
    assert deviation_verdict(RECORD) == (
        "Without a seal 2 of 2 attacks gave the user's update. Against the seal 0 of 2 did; 1 were refused by "
        "a device, and 1 gave noise."
    )
    broken = {**RECORD, "attempts": [*RECORD["attempts"], attempt("worse", "secagg+", True, RECOVERED)]}
    assert "Against the seal 1 of 3 did" in deviation_verdict(broken)


def test_the_chapter_is_a_section_of_a_page():
    """Table, pictures and the devices' own words are in it."""
    page = Page("Attack", "Title", "Answer", (), (deviation_section(RECORD),), Footer((), ()))
    html = render(page)
    assert html.count("<img ") == 5
    assert "no, said ana" in html
