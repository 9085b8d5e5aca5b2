"""What a deviating server got, in words, tables and pictures: from the record of `lab.attacks.demonstration`."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from coterie.pages.blocks import Picture, Pictures, Points, Section, Table, Text
from coterie.values.text import counted

Attempt = Mapping[str, Any]


class DeviationTable:
    """The attempts of a record: a row for each attack, a column for each protocol with or without a seal."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._cells = {(a["attack"], a["protocol"], a["sealed"]): a for a in record["attempts"]}
        self.attacks = tuple(dict.fromkeys(attack for attack, _, _ in self._cells))
        self._settings = tuple(dict.fromkeys((protocol, sealed) for _, protocol, sealed in self._cells))

    @property
    def columns(self) -> tuple[str, ...]:
        """What each column is about."""
        return tuple(f"{protocol}, {'sealed' if sealed else 'no seal'}" for protocol, sealed in self._settings)

    def attempts(self, attack: str) -> tuple[Attempt, ...]:
        """Return an attack's attempts, one for each column."""
        return tuple(self._cells[attack, protocol, sealed] for protocol, sealed in self._settings)

    def rows(self) -> Iterable[tuple[str, ...]]:
        """Yield what stands in each row, its name first."""
        for attack in self.attacks:
            yield (attack, *(outcome_words(attempt) for attempt in self.attempts(attack)))

    def refusals(self) -> dict[str, str]:
        """Return for each attack that a device refused the words in which it did so."""
        refused = (attempt for attempt in self._cells.values() if attempt["outcome"] == "refused")
        return {attempt["attack"]: attempt["reason"] for attempt in refused}


def outcome_words(attempt: Attempt) -> str:
    """Return what an attempt gave, in a few words.

    >>> outcome_words({"outcome": "recovered", "error": 9.2e-13, "correlation": 1.0})
    'recovered, error 9e-13'
    >>> outcome_words({"outcome": "noise", "error": 2e6, "correlation": -0.0035})
    'noise, correlation 0.00'
    >>> outcome_words({"outcome": "refused", "error": None, "correlation": None})
    'refused'
    """
    match attempt["outcome"]:
        case "recovered":
            return f"recovered, error {attempt['error']:.0e}"
        case "noise":
            return f"noise, correlation {round(attempt['correlation'], 2) + 0.0:.2f}"  # no minus before zero
        case _:
            return "refused"


def deviation_verdict(record: Mapping[str, Any]) -> str:
    """Return in a sentence or two what the attempts show, whatever that is."""
    attempts = record["attempts"]
    unsealed, sealed = ([a for a in attempts if a["sealed"] is kind] for kind in (False, True))
    unsealed_broken, sealed_broken = (
        sum(a["outcome"] == "recovered" for a in some) for some in (unsealed, sealed)
    )
    refused = sum(a["outcome"] == "refused" for a in sealed)
    return (
        f"Without a seal {unsealed_broken} of {counted(len(unsealed), 'attack')} gave the user's update. Against "
        f"the seal {sealed_broken} of {len(sealed)} did; {refused} were refused by a device, and "
        f"{len(sealed) - sealed_broken - refused} gave noise."
    )


def deviation_section(record: Mapping[str, Any]) -> Section:
    """Return the chapter on a server that breaks the rules."""
    table = DeviationTable(record)
    original = picture(record["original"], "the user's image")
    images = tuple(
        (attack, (original, *(picture(each["image"], outcome_note(each)) for each in table.attempts(attack))))
        for attack in table.attacks
    )
    scene = (
        f"{counted(record['users'], 'user')} in batches of {record['privacy']}, one image each. The server wants "
        "the update of one of them, and breaks a rule to get it. All messages are real ones."
    )
    columns = ("a server that", *table.columns)
    return Section(
        "A server that cheats",
        (
            Text((scene, deviation_verdict(record))),
            Table("What a cheating server gets", columns, tuple(table.rows()), table.columns),
            Pictures("What it can make of that", ("the user's image", *table.columns), images),
            Points(tuple((f"{attack}: refused", reason) for attack, reason in table.refusals().items())),
        ),
    )


def picture(image: list[list[list[int]]] | None, note: str) -> Picture:
    """Return an image of a record, height × width × channels of levels, or none, with a note under it."""
    return Picture(None if image is None else np.array(image, dtype=np.uint8), note)


def outcome_note(attempt: Attempt) -> str:
    """Return what stands under the picture of an attempt."""
    return attempt["outcome"] if attempt["image"] is None else f"{attempt['outcome']}, {attempt['psnr']:.0f} dB"
