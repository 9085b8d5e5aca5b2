"""Drawings show every value at its place, on axes that the values fill."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.pages.blocks import Curve, Curves, HeatMap, StackedBars
from coterie.pages.render import drawing

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda value: float(f"{value:.4g}"))


def places(path):
    """The points of a path of straight lines."""
    return [tuple(map(float, point.split())) for point in re.split("[ML]", path.rstrip("Z"))[1:]]


def value_at(drawn, y):
    """The value that the axis has at a height of the square, read off its lowest and its highest mark."""
    texts = [float(mark.text.replace("\N{NARROW NO-BREAK SPACE}", "").rstrip("%")) for mark in drawn.y]
    low, high = drawn.y[0], drawn.y[-1]
    return texts[0] + (y / 10 - low.at) / (high.at - low.at) * (texts[-1] - texts[0])


@given(st.lists(NUMBERS, min_size=2, max_size=20))
def test_a_curve_passes_through_its_values(values):
    """Read off the axis, each point has its value; all points and marks lie inside the drawing."""
    drawn = drawing(Curves((Curve("c", range(len(values)), values),), across="round"))
    line = next(shape for shape in drawn.shapes if shape.kind == "line")
    points = places(line.path)
    span = max(values) - min(values) or max(abs(values[0]), 1)
    assert [value_at(drawn, y) for _, y in points] == pytest.approx(values, abs=2e-3 * span + 1e-9)
    assert [x for x, _ in points] == pytest.approx(np.linspace(0, 1000, len(values)), abs=0.1)
    assert all(-1e-6 <= y <= 1000 for _, y in points)
    assert all(0 <= mark.at <= 100 for mark in (*drawn.x, *drawn.y))
    assert 2 <= len(drawn.y) <= 8


@pytest.mark.parametrize(
    ("values", "lowest", "highest"),
    [([0.91, 0.97], "90", "98"), ([0.2, 0.97], "0", "100"), ([1.0, 1.0], "0", "100"), ([0.5, 1.0], "50", "100")],
)
def test_an_axis_shows_the_curve_and_no_share_above_all(values, lowest, highest):
    """High accuracies fill the height; low ones begin at zero; no axis of shares goes beyond 100 %."""
    drawn = drawing(Curves((Curve("accuracy", [0, 1], values),), across="round", percent=True))
    assert drawn.y[0].text.split("\N{NARROW NO-BREAK SPACE}")[0] == lowest
    assert drawn.y[-1].text.split("\N{NARROW NO-BREAK SPACE}")[0] == highest


def test_steps_begin_at_zero_and_are_marked_at_whole_numbers():
    """A level that falls from 6 to 3 is drawn above zero, and no mark stands between two levels."""
    drawn = drawing(Curves((Curve("T", [0, 5, 9], [6, 3, 3], step=True),), across="round"))
    assert [mark.text for mark in drawn.y] == ["0", "2", "4", "6", "8"]
    assert [shape.kind for shape in drawn.shapes] == ["line"]


def test_a_band_encloses_its_curve():
    """The band's edges are its lower and upper values, inside the axis."""
    curve = Curve("mean", [0, 1], [2.0, 4.0], band=([1.0, 3.0], [3.0, 9.0]))
    band, line, _ = drawing(Curves((curve,), across="round")).shapes
    assert (band.kind, line.kind) == ("band", "line")
    (x0, high0), (x1, high1), (x2, low1), (x3, low0) = places(band.path)
    (_, first), (_, second) = places(line.path)
    assert (x0, x1, x2, x3) == (0, 1000, 1000, 0)
    assert high0 < first < low0
    assert high1 < second < low1


def test_parts_of_a_bar_stand_on_each_other():
    """The second part begins where the first one ends, and the whole has the sum's height."""
    drawn = drawing(StackedBars(("a", "b"), (("one", [3, 0]), ("two", [1, 4])), across="batch"))
    first, second = (shape.path for shape in drawn.shapes)
    top = re.search(r"V([\d.]+)", first)[1]
    assert f" {top}h" in second
    assert len(re.findall("M", first)) == 1
    assert [mark.text for mark in drawn.x] == ["a", "b"]
    assert [name for name, _ in drawn.legend] == ["one", "two"]


def test_a_single_point_and_no_point_can_be_drawn():
    """One measurement is a dot in the middle; none is an empty drawing."""
    (line, dots) = drawing(Curves((Curve("c", [7], [0.5]),), across="round")).shapes
    assert line.path.startswith("M500 ")
    assert dots.path == line.path + "h0"
    assert drawing(Curves((Curve("c", [], []),), across="round")).shapes == ()


def test_the_strongest_cell_has_the_full_colour():
    """A picture is as strong as its largest share, and an empty one is empty."""
    empty = HeatMap(np.zeros((2, 3)), [0, 1, 2], ["a", "b"], [(0, "a")], across="round")
    some = HeatMap(np.array([[0.0, 0.25]]), [0, 1], ["a"], [(0, "a")], across="round")
    assert drawing(empty).hover["top"] == 1
    assert drawing(some).hover["top"] == 0.25
    assert drawing(empty).image != drawing(some).image
