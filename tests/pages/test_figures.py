"""Figures are drawn from records alone, and refuse what they cannot draw before any work is done."""

import json
from pathlib import Path

import pytest
from pictures import exposure

from coterie import UsageError
from coterie.pages.figures import check_figure_path, deviation, trade_off

OPTION = {"privacy": 2, "plan": "consecutive", "cardinality": 3.5}
PLAN = {
    "users": 8,
    "per_round": 4,
    "random_cardinality": 4.0,
    "options": [OPTION],
    "recommended": OPTION,
    "rule_met": True,
}
PANEL = {"title": "random", "sets": [[0, 1], [1, 2]], "exposed": [None, 1, None]}
EXPOSURE = {"users": 3, "rounds": 2, "panels": [PANEL, PANEL]}
IMAGE = [[[0], [255]], [[128], [7]]]
ATTEMPT = {"attack": "cheats", "protocol": "secagg+", "outcome": "recovered", "psnr": 20.0, "image": IMAGE}
REFUSED = {**ATTEMPT, "outcome": "refused", "psnr": None, "image": None}
DEVIATION = {"original": IMAGE, "attempts": [{**ATTEMPT, "sealed": False}, {**REFUSED, "sealed": True}]}


@pytest.mark.parametrize(
    ("draw", "record"),
    [(trade_off, PLAN), (exposure, EXPOSURE), (deviation, DEVIATION)],
)
def test_a_record_that_went_through_json_draws_the_same_picture(draw, record, tmp_path):
    """The same record gives the same SVG, byte for byte, also after JSON; PNG works too."""
    first, second, third = tmp_path / "a.svg", tmp_path / "b.svg", tmp_path / "c.png"
    draw(record, first)
    draw(json.loads(json.dumps(record)), second)
    draw(record, third)
    assert first.read_bytes() == second.read_bytes()
    assert third.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.svg", "c.png"]


@pytest.mark.parametrize(("name", "message"), [("p.gif", "neither a .png nor a .svg"), ("no/p.png", "folder")])
def test_a_picture_that_cannot_be_written_is_refused_first(name, message, tmp_path):
    """A wrong suffix or a missing folder is named before anything is drawn."""
    with pytest.raises(UsageError, match=message):
        check_figure_path(Path(tmp_path / name))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_follows_the_scheme_of_its_page(chromium, scheme, tmp_path):
    """Letters stand out from a page's ground in both schemes, and the picture has no ground of its own."""
    exposure(EXPOSURE, tmp_path / "p.svg")
    context = chromium.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto((tmp_path / "p.svg").as_uri())
    colour = page.evaluate("getComputedStyle(document.querySelector('text')).fill")
    assert colour == {"light": "rgb(0, 0, 0)", "dark": "rgb(214, 217, 222)"}[scheme]
    assert "#ffffff" not in (tmp_path / "p.svg").read_text()
    context.close()
