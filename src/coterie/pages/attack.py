"""What a server can make of many rounds' sums, in words, plots and pictures: the record of an attack as a page."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.files import write_file
from coterie.lab.attacks.score import FOUND
from coterie.pages.blocks import (
    Block,
    Commands,
    Footer,
    Page,
    Pictures,
    Plot,
    Plots,
    Points,
    Section,
    StackedBars,
    Table,
    Text,
)
from coterie.pages.deviation import deviation_section, picture
from coterie.pages.figures import can_draw, deviation, reconstruction_grid, reconstruction_histogram
from coterie.pages.render import can_render, render, write_page
from coterie.values.text import KeyNumber, Tone, counted

AttackRecord = Mapping[str, Any]
RECORD = "attack.json"
EDGES = (0.001, 0.01, 0.1, 0.5, 1.0)
"""Where the bars of errors end; the last bar has all that are larger."""
BINS = (*(f"<{edge:g}" for edge in EDGES), f"≥{EDGES[-1]:g}")


def scheme_words(scheme: str, privacy: int | None) -> str:
    """Return what a scheme is called for people.

    >>> scheme_words("random", None), scheme_words("T4", 4)
    ('random selection', 'batches of 4')
    """
    if privacy is not None and privacy > 1:
        return f"batches of {privacy}"
    return {"random": "random selection", "weighted": "weighted selection"}.get(scheme, scheme)


def attack_verdict(record: AttackRecord) -> tuple[str, Tone]:
    """Return in one sentence what the attack came to, whatever that is, and how it should be taken.

    That nobody was found is good news in batches alone: elsewhere it says that these attacks failed, and no more.
    """
    schemes = record["schemes"]
    if len(schemes) == 1:
        (result,) = schemes
        found, users = result["users_found"], result["users"]
        if found > result["found_by_chance"]:
            return f"The server found the updates of {found} of {counted(users, 'user')}", "warning"
        beyond = " beyond chance" if found else ""
        return f"The server found nobody's update{beyond} among {counted(users, 'user')}", _tone_if_nobody(schemes)
    exposed = [each for each in schemes if each["users_found"] > each["found_by_chance"]]
    if not exposed:
        return "The server found nobody's update", _tone_if_nobody(schemes)
    parts = [
        f"{each['users_found']} of {each['users']} users under {scheme_words(each['scheme'], each['privacy'])}"
        + (f" ({each['found_by_chance']} by chance)" if each["found_by_chance"] else "")
        for each in schemes
    ]
    hidden = len(schemes) - len(exposed)
    return f"The server found {_listed(parts)}", "plain" if hidden else "warning"


def _tone_if_nobody(schemes: Sequence[AttackRecord]) -> Tone:
    """Return how it should be taken that nobody was found."""
    return "plain" if any(map(_merely_failed, schemes)) else "good"


def _merely_failed(result: AttackRecord) -> bool:
    """Return whether nobody was found although no batch hides anybody."""
    return result["users_found"] <= result["found_by_chance"] and (result["privacy"] or 1) == 1


def attack_caveats(record: AttackRecord) -> tuple[str, ...]:
    """Return what must be said where nobody was found although no batch hides anybody."""
    return tuple(
        f"No batch hides anybody here: that these attacks failed on {counted(each['window']['rounds'], 'round')} "
        f"and {counted(each['users'], 'user')} is no protection. They work best where updates repeat (a small "
        "learning rate, few local steps) over more rounds than there are users; `coterie audit` says what the "
        "sums give away."
        for each in record["schemes"]
        if _merely_failed(each)
    )


def attack_sentences(record: AttackRecord) -> tuple[str, ...]:
    """Return a sentence for each scheme: how far off the strongest estimate was, by which method."""
    return tuple(
        f"{scheme_words(each['scheme'], each['privacy']).capitalize()}: by {each['method']} over "
        f"{counted(each['window']['rounds'], 'round')} the squared relative error of a user's update is "
        f"{each['error']['median']:.2g} in the median and {each['error']['least']:.2g} at best."
        for each in record["schemes"]
    )


def write_attack_report(record: dict[str, Any], folder: Path, date: str) -> list[Path]:
    """Write the record of an attack, its figures and its page; return the files that were written.

    `date` says when the page was made. Without the packages of coterie[report] only the record is written.
    """
    files = [folder / RECORD]
    write_file(files[0], f"{json.dumps(record)}\n".encode())
    figures = [("errors.png", reconstruction_histogram, record)]
    if "pictures" in record:
        figures.append(("images.png", reconstruction_grid, record))
    if "deviation" in record:
        figures.append(("deviation.png", deviation, record["deviation"]))
    for name, draw, drawn in figures if can_draw() else ():
        files.append(folder / name)
        draw(drawn, files[-1])
    if can_render():
        files.append(folder / "report.html")
        write_page(attack_page(record, date), files[-1])
    return files


def attack_page(record: AttackRecord, date: str) -> str:
    """Return the page of an attack as one HTML file; `date` says when it was made."""
    title, tone = attack_verdict(record)
    schemes = record["schemes"]
    sections = [
        Section("What the server computed", _computed(schemes)),
        *([Section("What that looks like", (_gallery(record),))] if "pictures" in record else []),
        *([deviation_section(record["deviation"])] if "deviation" in record else []),
        Section("How it is done", (Points(tuple(EXPLANATIONS.items())),), printed=False),
        Section("What to do next", (_next(schemes),), printed=False),
    ]
    return render(
        Page(
            kind="Attack report",
            subject=f"{counted(schemes[0]['users'], 'user')}, {counted(len(schemes), 'run')}",
            date=date,
            title=title,
            answer=" ".join(attack_sentences(record) + attack_caveats(record)),
            tiles=tuple(map(_tile, schemes)),
            sections=tuple(sections),
            footer=_footer(record),
            tone=tone,
        )
    )


def _tile(result: AttackRecord) -> KeyNumber:
    found, chance = result["users_found"], result["found_by_chance"]
    meaning = f"error {result['error']['median']:.2g} in the median; by chance {chance} would be found"
    name = scheme_words(result["scheme"], result["privacy"])
    tone: Tone = "warning" if found > chance else _tone_if_nobody([result])
    return KeyNumber(f"Found: {name}", f"{found} of {result['users']}", meaning, tone)


def _computed(schemes: Sequence[AttackRecord]) -> tuple[Block, ...]:
    how = (
        "Every round the server learns the sum of its users' updates, and nothing else. Over a window of rounds "
        "it takes the sums apart. An error of 0 is the update itself; 1 is as good as an estimate of zero. A user "
        f"whose error is below {FOUND:g} is found."
    )
    bars = tuple((scheme_words(each["scheme"], each["privacy"]), _histogram(each["errors"])) for each in schemes)
    plots = tuple(
        Plot(
            f"Errors: {name}",
            StackedBars(BINS, (("users", counts),), "squared relative error"),
            ", ".join(f"{counted(count, 'user')} {bin_}" for bin_, count in zip(BINS, counts, strict=True)),
            height=180,
        )
        for name, counts in bars
    )
    rows = tuple(
        (
            scheme_words(each["scheme"], each["privacy"]),
            method["method"],
            f"{method['users_found']} of {each['users']}",
            f"{method['error']['median']:.3g}",
            f"{method['error']['mean']:.3g}",
            f"{method['error']['least']:.3g}",
        )
        for each in schemes
        for method in each["methods"]
    )
    columns = ("scheme", "method", "users found", "median error", "mean error", "least error")
    return Text((how,)), Plots(plots), Table("Every method that was tried", columns, rows, words=("method",))


def _histogram(errors: Sequence[float]) -> tuple[int, ...]:
    return tuple(np.bincount(np.searchsorted(EDGES, errors, side="right"), minlength=len(EDGES) + 1).tolist())


def _gallery(record: AttackRecord) -> Pictures:
    pictures = record["pictures"]
    named = {each["scheme"]: scheme_words(each["scheme"], each["privacy"]) for each in record["schemes"]}
    columns = ("the user's image", *(named.get(scheme, scheme) for scheme in pictures["schemes"]))
    rows = tuple(
        (
            f"user {user}",
            (
                picture(original, "original"),
                *(
                    picture(gallery["images"][place], decibel(gallery["psnr"][place]))
                    for gallery in pictures["schemes"].values()
                ),
            ),
        )
        for place, (user, original) in enumerate(zip(pictures["users"], pictures["originals"], strict=True))
    )
    caption = (
        "Each user has one image and takes one step on it: what the server makes of its estimate of that update, "
        "with the peak signal-to-noise ratio (above some 15 dB one recognises a digit)"
    )
    return Pictures(caption, columns, rows)


def decibel(value: float) -> str:
    """Return a peak signal-to-noise ratio.

    >>> decibel(23.456)
    '23.5 dB'
    """
    return "identical" if math.isinf(value) else f"{value:.1f} dB"


EXPLANATIONS = {
    "What the server has": "Who took part in which round, the mean update of each round, and the global models. "
    "Attacks read this view and nothing else; the real updates are known to the judge alone.",
    "Least squares": "If updates repeat, sums over different users are equations with the same unknowns. In "
    "batches that take part whole, members have equal columns, and everybody's best estimate is the batch's mean.",
    "Diagonal drift": "The same, less a drift that follows the global models, estimated for each parameter from "
    "the rounds to spare.",
    "Kriging": "Updates as a random function of the global model, whose variances are those under which the sums "
    "are most likely: the strongest of the three where the model still learns.",
    "By chance": "What needs no taking apart: the mean of all sums, or the mean of the own batch, which the "
    "server has by right. Only who is found beyond that has been found by the attack.",
}
"""How the attacks work, in a few words each."""


def _next(schemes: Sequence[AttackRecord]) -> Commands:
    commands = [
        ("coterie attack --demo", "Random selection against batches of two and four on the shipped data."),
        ("coterie audit RUN", "What the log alone gives away, proven: no attack needs to succeed for it."),
    ]
    if any(each["users_found"] > each["found_by_chance"] for each in schemes):
        commands.insert(0, ("coterie run --privacy 4", "The same training in sealed batches of four."))
    return Commands(tuple(commands))


def _footer(record: AttackRecord) -> Footer:
    return Footer(
        facts=(("Folder", str(record["out"])),),
        assumptions=(
            "The server is honest but curious: it keeps to the protocol and looks at what it has.",
            "An attack that fails shows that this attack fails. What no attack can do is said by `coterie audit`.",
            "Sums are those that secure aggregation shows; in plain runs the server saw every update anyway.",
        ),
    )


def _listed(parts: Sequence[str]) -> str:
    """Return parts as a list in words.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else parts[0]
