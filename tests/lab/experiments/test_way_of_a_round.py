"""The way of a round in the documentation is the one that a round goes."""

import sys
import threading
from pathlib import Path

import coterie
from coterie.lab.experiments.run import Run
from support.experiments.tiny import tiny_spec

PACKAGE = Path(coterie.__file__).parent
DOCS = PACKAGE.parents[1] / "docs"
BEFORE_AND_AFTER = {
    "lab/experiments/spec.py",
    "lab/experiments/result.py",
    "pages/run.py",
}
"""What is read before the first round and after the last."""


def test_a_round_goes_through_the_files_that_the_page_names_and_no_others(data, tmp_path, monkeypatch):
    """Every file of the package in which a round calls something is in one of the page's two lists."""
    monkeypatch.syspath_prepend(DOCS)
    import architecture

    entered = set()

    def note(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(f"{PACKAGE}/"):
            entered.add(file.removeprefix(f"{PACKAGE}/"))

    with Run.start(
        tiny_spec(data, "secagg+", selection__dropout=[0.0], selection__lost=0.0), tmp_path / "run"
    ) as run:
        steps = run.steps()
        next(steps)  # what is loaded and looked up once is no part of a round
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            next(steps)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    read = architecture.READING.keys() - BEFORE_AND_AFTER
    without_calls = {"secagg/protocols/__init__.py", "secagg/protocols/agreement/messages.py"}
    assert read - without_calls <= entered
    assert entered <= read | architecture.AT_HAND.keys()
    assert architecture.AT_HAND.keys() <= entered
