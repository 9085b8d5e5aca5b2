"""The page of an attack: its verdict in words, and the page in a real browser."""

import json

import numpy as np
import pytest

from coterie.lab.attacks.attack import METHODS
from coterie.pages.attack import EXPLANATIONS, attack_caveats, attack_page, attack_sentences, attack_verdict
from coterie.pages.figures import reconstruction_grid, reconstruction_histogram
from coterie.pages.render import write_page
from support.browser import visit
from support.pages import DRAWN, charts_of

USERS = 20


def scheme(name, privacy, found, chance=0):
    """A scheme's record, in which so many users are found."""
    errors = [0.004] * found + [0.7] * (USERS - found)
    method = {
        "method": "kriging",
        "users_found": found,
        "error": {"median": float(np.median(errors)), "mean": float(np.mean(errors)), "least": min(errors)},
    }
    return {
        "scheme": name,
        "privacy": privacy,
        "users": USERS,
        "users_found": found,
        "found_by_chance": chance,
        "error": method["error"],
        "psnr": 20.0,
        "method": "kriging",
        "methods": [method, {**method, "method": "least squares"}],
        "window": {"first": 1, "last": 60, "rounds": 60},
        "errors": errors,
    }


def record(*schemes, pictures=True):
    """The record of an attack, with pictures of three users."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 28, 28, 1)).tolist()
    gallery = {"images": images, "psnr": [21.0, 9.5, 15.25]}
    shown = {"users": [0, 5, 10], "originals": images, "schemes": {each["scheme"]: gallery for each in schemes}}
    return {"schemes": list(schemes), "out": "somewhere", **({"pictures": shown} if pictures else {})}


THREE = record(scheme("random", None, 20), scheme("T2", 2, 0), scheme("T4", 4, 0))


@pytest.mark.parametrize(
    ("schemes", "title", "tone"),
    [
        ([scheme("random", None, 17)], "The server found the updates of 17 of 20 users", "warning"),
        ([scheme("T4", 4, 0)], "The server found nobody's update among 20 users", "good"),
        ([scheme("random", None, 0)], "The server found nobody's update among 20 users", "plain"),
        ([scheme("T2", 2, 4, chance=4)], "The server found nobody's update beyond chance among 20 users", "good"),
        ([scheme("T2", 2, 5, chance=4)], "The server found the updates of 5 of 20 users", "warning"),
        (
            THREE["schemes"],
            (
                "The server found 20 of 20 users under random selection, 0 of 20 users under batches of 2 and "
                "0 of 20 users under batches of 4"
            ),
            "plain",
        ),
        ([scheme("T2", 2, 0), scheme("T4", 4, 0)], "The server found nobody's update", "good"),
    ],
)
def test_the_verdict_says_who_was_found_beyond_chance(schemes, title, tone):
    """Whatever came out; users whom their batch's mean shows anyway do not count."""
    assert attack_verdict(record(*schemes)) == (title, tone)


def test_a_failed_attack_is_no_protection_where_no_batch_hides_anybody():
    """The page says so of random selection, and of nothing else."""
    (caveat,) = attack_caveats(record(scheme("random", None, 0), scheme("T4", 4, 0)))
    assert "failed on 60 rounds and 20 users is no protection" in caveat
    assert caveat.split("`")[0] in attack_page(record(scheme("random", None, 0), pictures=False), "2025-03-01")
    assert attack_caveats(THREE) == ()


def test_every_scheme_has_its_sentence():
    """Which method over which window, and how near it came."""
    sentences = attack_sentences(THREE)
    assert len(sentences) == 3
    assert sentences[1].startswith("Batches of 2: by kriging over 60 rounds")


def test_the_page_says_once_what_made_it():
    """The foot of every page does, so the attack's own facts do not."""
    assert attack_page(THREE, "2025-03-01").count("Made by") == 1


def test_the_bars_count_every_user():
    """A bar for each span of errors, a plot for each scheme."""
    charts = charts_of(attack_page(record(scheme("random", None, 13), pictures=False), "2025-03-01"))
    assert charts["Errors: random selection"]["lines"][0]["y"] == [0, 13, 0, 0, 7, 0]


@pytest.mark.parametrize(("width", "colours"), [(390, "dark"), (1400, "light")])
def test_the_page_is_drawn_quietly_and_shows_its_pictures(chromium, tmp_path, width, colours):
    """Plots and all images are there; no request, no complaint, no sideways scrolling."""
    file = tmp_path / "report.html"
    write_page(attack_page(THREE, "2025-03-01"), file)
    with visit(chromium, file, width, colours) as visited:
        assert all(visited.page.evaluate(DRAWN))
        assert visited.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        shown = visited.page.evaluate(
            "[...document.querySelectorAll('main img')].filter((image) => image.naturalWidth === 28).length"
        )
        assert shown == 3 * 4
        assert "dB" in visited.page.inner_text("main")
        assert visited.complaints == []
        assert [url for url in visited.requests if not url.startswith(("file:", "data:"))] == []


def test_figures_are_drawn_from_the_record(tmp_path):
    """The histogram of errors and the grid of images, also as plain JSON brings them back."""
    again = json.loads(json.dumps(THREE))
    reconstruction_histogram(again, tmp_path / "errors.svg")
    reconstruction_grid(again, tmp_path / "images.png")
    assert "20 of 20 found" in (tmp_path / "errors.svg").read_text()
    assert (tmp_path / "images.png").stat().st_size > 5000


def test_every_method_that_is_tried_is_explained():
    """A method of disaggregation that joins `METHODS` has its words on the page, under its own name."""
    assert {method.name.capitalize() for method in METHODS} <= EXPLANATIONS.keys()
