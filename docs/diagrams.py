"""Draw the state diagrams of docs/protocol.md from the tables of coterie.secagg, as plain SVG.

python docs/diagrams.py
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from coterie.secagg.protocols import open as collection
from coterie.secagg.protocols.agreement import messages as agreement
from coterie.secagg.protocols.lightsecagg import LightRound
from coterie.secagg.protocols.pairwise import PairwiseRound
from coterie.secagg.wire import messages as states

PICTURES = Path(__file__).parent / "pictures"
WIDTH, BOX, HEIGHT, STEP, TOP = 760, 130, 52, 90, 28
LEFT, RIGHT = (WIDTH - BOX) / 2, (WIDTH + BOX) / 2
INK, SOFT, PAPER = "var(--ink, #1b3a4b)", "var(--soft, #5c7c8a)", "var(--paper, #eef4f6)"
DARK = (
    "<style>@media (prefers-color-scheme: dark) "
    "{ svg { --ink: #dbe7ec; --soft: #8fb0bf; --paper: #1d2b32 } }</style>"
)


@dataclass(frozen=True)
class Arrow:
    """One way from a state to another; `own` is a step that no message makes."""

    start: Enum
    label: str
    end: Enum
    own: bool


def arrows(table: Mapping[tuple[Any, Any], Any], steps: Mapping[Any, Any]) -> list[Arrow]:
    """Return the transitions of a table and the steps beside it; messages that lead one way are one arrow."""
    ways: dict[tuple[Enum, Enum], list[str]] = {}
    for (start, kind), end in table.items():
        ways.setdefault((start, end), []).append(kind.__name__)
    found = [Arrow(start, ", ".join(labels), end, own=False) for (start, end), labels in ways.items()]
    for key, end in steps.items():
        start, label = key if isinstance(key, tuple) else (key, "the phase ends")
        found.append(Arrow(start, label, end, own=True))
    return found


_HELPING = Arrow(agreement.ServerState.SHARED, "in an incomplete batch", agreement.ServerState.HELPING, own=True)
DIAGRAMS = {
    "client-enrolment": (states.EnrolmentState, arrows(states.CLIENT_ENROLMENT, {})),
    "client-rounds": (states.ClientState, arrows(states.CLIENT_SEALED, states.CLIENT_STEPS)),
    "server-founding": (states.FoundingState, arrows(states.SERVER_FOUNDING, states.SERVER_FOUNDING_ENDS)),
    "server-open": (
        collection.CollectionState,
        arrows(collection.SERVER_TABLE, collection.SERVER_TABLE_ENDS),
    ),
    "client-pairwise": (agreement.ParticipantState, arrows(agreement.CLIENT_TABLE, {})),
    "server-pairwise": (
        agreement.ServerState,
        [*arrows(PairwiseRound.table, agreement.SERVER_TABLE_ENDS), _HELPING],
    ),
    "server-lightsecagg": (
        agreement.ServerState,
        [*arrows(LightRound.table, agreement.SERVER_TABLE_ENDS), _HELPING],
    ),
}


def drawn(machine: type[Enum], ways: list[Arrow]) -> str:
    """Return a diagram: states from top to bottom, arrows down on the right, arrows back up on the left."""
    row = {state: number for number, state in enumerate(machine)}
    height = TOP + STEP * (len(row) - 1) + HEIGHT + TOP
    size = f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" fill="{INK}"'
    tip = 'id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        DARK,
        f'<marker {tip}><path d="M0 0 8 4 0 8z" fill="{SOFT}"/></marker>',
    ]
    leaving: Counter[tuple[Enum, int]] = Counter()
    for way in ways:
        start, end = row[way.start], row[way.end]
        side = 0 if end == start + 1 else 1 if end > start else -1
        parts += _arrow(way, start, end, side, leaving[way.start, side])
        leaving[way.start, side] += 1
    for state, number in row.items():
        y = TOP + STEP * number
        parts.append(
            f'<rect x="{LEFT:g}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="9" fill="{PAPER}" stroke="{INK}"/>'
        )
        parts.append(
            f'<text x="{WIDTH / 2:g}" y="{y + HEIGHT // 2 + 5}" text-anchor="middle">{state.value}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _arrow(way: Arrow, start: int, end: int, side: int, number: int) -> list[str]:
    """Return a line and its label, which stands where the line leaves its state, after `number` others there."""
    dash = ' stroke-dasharray="5 4"' if way.own else ""
    line = f'fill="none" stroke="{SOFT}"{dash} marker-end="url(#tip)"'
    top = TOP + STEP * start
    if side == 0:
        low = top + HEIGHT
        return [
            f'<path d="M{WIDTH / 2:g} {low}V{low + STEP - HEIGHT - 2}" {line}/>',
            f'<text x="{WIDTH / 2 + 8:g}" y="{low + 23}" font-size="12">{way.label}</text>',
        ]
    edge, anchor = (RIGHT, "start") if side > 0 else (LEFT, "end")
    leave = top + (16 if side > 0 else 5) + 15 * number
    enter = leave + 9 if start == end else TOP + STEP * end + HEIGHT // 2
    bulge = edge + side * (150 + 22 * abs(end - start))
    curve = f"M{edge:g} {leave}C{bulge:g} {leave} {bulge:g} {enter} {edge + 2 * side:g} {enter}"
    baseline = leave - 4 if side > 0 else leave + 12
    return [
        f'<path d="{curve}" {line}/>',
        f'<text x="{edge + 8 * side:g}" y="{baseline}" font-size="12" text-anchor="{anchor}">{way.label}</text>',
    ]


def main() -> None:
    """Write all diagrams."""
    for name, (machine, ways) in DIAGRAMS.items():
        (PICTURES / f"{name}.svg").write_text(drawn(machine, ways), encoding="utf-8", newline="\n")
        print(f"drew docs/pictures/{name}.svg")


if __name__ == "__main__":
    main()
