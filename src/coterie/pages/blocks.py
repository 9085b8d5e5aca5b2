"""What pages are made of: frozen values that say what to show, and nothing about how it looks.

Who took part when is one of them: a picture of users × rounds, both binned when there are many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.values import FloatArray, IntArray, ParticipationLog
from coterie.values.text import KeyNumber, Tone, counted, display_name, number, percent, shortened

MOST_TICKS = 12
LONGEST_TICK = 14
"""Names of rows beside a picture, and their letters."""


@dataclass(frozen=True)
class Text:
    """Paragraphs in plain words. Text between `backticks` is set as code; nothing else is markup."""

    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Points:
    """Statements, each under a few words that name it: (name, statement)."""

    points: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Curve:
    """Points of one curve, from left to right.

    `step` holds a value until the next one. `band` is a lower and an upper value for each point, drawn as an area.
    """

    name: str
    x: Sequence[int]
    y: Sequence[float]
    step: bool = False
    band: tuple[Sequence[float], Sequence[float]] | None = None


@dataclass(frozen=True)
class Curves:
    """Curves over the rounds, or whatever `across` names. With `percent`, a value of 1 is 100 %."""

    lines: tuple[Curve, ...]
    across: str
    percent: bool = False


@dataclass(frozen=True)
class StackedBars:
    """A bar for each name, made of parts that add up: (name of the part, its value in each bar)."""

    names: tuple[str, ...]
    parts: tuple[tuple[str, Sequence[int]], ...]
    across: str


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Shares from 0 up to the largest, which has the strongest colour.

    `columns` numbers every column by its first round. `rows` names every row, each by a name of its own, for who
    points at it; `ticks` names some rows at the side: (row, name).
    """

    share: FloatArray
    columns: Sequence[int]
    rows: Sequence[str]
    ticks: Sequence[tuple[int, str]]
    across: str


Chart: TypeAlias = Curves | StackedBars | HeatMap


@dataclass(frozen=True)
class Plot:
    """A chart, its title, and a caption with its numbers in words, for those who cannot see it.

    `height` is that of the drawing itself in pixels, without axes. `wide` gives the plot the whole width; others
    stand side by side.
    """

    title: str
    chart: Chart
    caption: str
    height: int = 220
    wide: bool = False


@dataclass(frozen=True)
class Plots:
    """Plots that belong together, side by side where there is room."""

    plots: tuple[Plot, ...]


@dataclass(frozen=True)
class Table:
    """A table whose first column names the row. Many rows scroll in a box, under a header that stays.

    Captions are distinct on a page. Columns hold numbers, set to the right, except those named in `words`.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]
    words: tuple[str, ...] = ()

    LONG = 16
    """Rows from which on the box scrolls."""


@dataclass(frozen=True, eq=False)
class Picture:
    """An image of height × width × channels of levels from 0 to 255, or none, and a few words below it."""

    pixels: NDArray[np.uint8] | None
    note: str


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images in rows and columns, to be compared: (name of the row, its pictures).

    Captions are distinct on a page.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Picture, ...]], ...]


@dataclass(frozen=True)
class Listing:
    """A text to copy as it stands, such as settings; `name` says what it is."""

    name: str
    text: str


@dataclass(frozen=True)
class Commands:
    """What to type next: (command, what it tells)."""

    commands: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Details:
    """Blocks that are folded away behind one line: a proof, a long table, settings."""

    summary: str
    blocks: "tuple[Block, ...]"


Block: TypeAlias = Text | Points | Plots | Table | Pictures | Listing | Commands | Details


@dataclass(frozen=True)
class Section:
    """A headed part of a page; on paper only what is `printed` and not folded away."""

    heading: str
    blocks: tuple[Block, ...]
    printed: bool = True


@dataclass(frozen=True)
class Footer:
    """What stands under a page: facts that say where it came from, and what its statements rest on."""

    facts: tuple[tuple[str, str], ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """A page: the verdict as its title, the answer in a sentence or two, key numbers, sections and the footer.

    `kind` says what sort of page it is and `subject` what it is about, in a few words; `date` is when it was made.
    The first three key numbers lead, the others stand small below them.
    """

    kind: str
    title: str
    answer: str
    tiles: tuple[KeyNumber, ...]
    sections: tuple[Section, ...]
    footer: Footer
    tone: Tone = "plain"
    subject: str = ""
    date: str = ""

    LEADING = 3
    """Key numbers that lead."""


def evenly(count: int, most: int) -> IntArray:
    """Return at most `most` of `count` places, evenly spaced, the first and the last among them: a curve cut down.

    >>> evenly(5, 10).tolist(), evenly(101, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 50, 100])
    """
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


@dataclass(frozen=True, eq=False)
class Participation:
    """`share[r, c]` is the share of (user, round) pairs in row r and column c in which the user took part.

    Row r holds the users `order[row_starts[r]:row_starts[r + 1]]`; column c holds the rounds from
    `column_starts[c]` up to `column_starts[c + 1]`, counted from the log's first.
    """

    share: FloatArray
    order: IntArray
    row_starts: IntArray
    column_starts: IntArray
    times: IntArray
    """In how many rounds each user took part."""

    def users(self, row: int) -> IntArray:
        """Return the users of a row."""
        return self.order[self.row_starts[row] : self.row_starts[row + 1]]

    @property
    def binned(self) -> bool:
        """Whether a cell stands for more than one user or round."""
        return self.share.size < len(self.order) * int(self.column_starts[-1])


def participation(
    log: ParticipationLog, groups: IntArray | None, most_rows: int = 240, most_columns: int = 300
) -> Participation:
    """Return the picture of a log, users in the order of their groups (each user's, -1 for none), others last.

    With more users than rows, a row holds one or more whole groups, never a part of one; with more rounds than
    columns, a column holds several.

    >>> log = ParticipationLog.from_dense([[1, 0, 1, 0], [0, 1, 0, 1]])
    >>> picture = participation(log, np.array([0, 1, 0, 1]))
    >>> picture.order.tolist(), picture.share.tolist()
    ([0, 2, 1, 3], [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    """
    groups = np.full(log.users, -1) if groups is None else groups
    order = np.lexsort((groups, groups < 0))
    edges = np.arange(log.users + 1)
    if log.users > most_rows:
        begins = (groups[order] < 0) | (np.diff(groups[order], prepend=-1) != 0)
        edges = np.append(np.flatnonzero(begins), log.users)
    row_starts = edges[_cuts(len(edges) - 1, most_rows)]
    column_starts = _cuts(log.rounds, most_columns)
    row_of = np.empty(log.users, dtype=np.int64)
    row_of[order] = np.repeat(np.arange(len(row_starts) - 1), np.diff(row_starts))

    # A user counts once for a round, however many learned sets of the round it is in.
    rounds = np.repeat(log.set_rounds - log.first, np.diff(log.starts))
    pairs = np.unique(rounds * log.users + log.members)
    rounds, users = np.divmod(pairs, max(log.users, 1))
    sizes = np.outer(np.diff(row_starts), np.diff(column_starts))
    columns = np.searchsorted(column_starts, rounds, side="right") - 1
    cells = row_of[users] * sizes.shape[1] + columns
    counts = np.bincount(cells, minlength=sizes.size).reshape(sizes.shape)
    times = np.bincount(users, minlength=log.users)
    return Participation(counts / sizes, order, row_starts, column_starts, times)


def participation_plot(
    log: ParticipationLog,
    batches: IntArray | None,
    *,
    groups: IntArray | None = None,
    numbers: IntArray | None = None,
) -> Plot:
    """Return who took part when; users of one batch stand together, without batches users of one group.

    `batches` and `groups` give each user's, -1 for none. `numbers` are the users' own, if the log has only some.
    """
    picture = participation(log, groups if batches is None else batches)
    numbered = [f"user {user}" for user in (np.arange(log.users) if numbers is None else numbers).tolist()]
    names = numbered if log.names is None else [display_name(name) for name in log.names]
    # Long names are cut, so the number keeps rows apart.
    places = [own if own == name else f"{name} ({own})" for name, own in zip(names, numbered, strict=True)]
    rows = [picture.users(row).tolist() for row in range(len(picture.share))]
    chart = HeatMap(
        picture.share,
        columns=(log.first + picture.column_starts[:-1]).tolist(),
        rows=[_row_name(users, places, batches) for users in rows],
        ticks=_ticks([users[0] for users in rows], names, batches),
        across="round",
    )
    height = int(np.clip(80 + 4 * len(picture.share), 160, 560))
    return Plot("Users and rounds", chart, _caption(log, picture), height=height, wide=True)


def _row_name(users: list[int], places: Sequence[str], batches: IntArray | None) -> str:
    """Return a name of its own for a row: its user, or the users that it holds."""
    first = places[users[0]]
    if batches is not None and batches[users[0]] >= 0:
        first += f", batch {batches[users[0]]}"
    return first if len(users) == 1 else f"{number(len(users))} users from {first} on"


def _ticks(firsts: list[int], names: Sequence[str], batches: IntArray | None) -> list[tuple[int, str]]:
    """Return names for some rows, given by their first users: batches where they begin, or users."""
    if batches is None:
        rows = evenly(len(firsts), MOST_TICKS).tolist()
        return [(row, shortened(names[firsts[row]], LONGEST_TICK)) for row in rows]
    of_row = batches[firsts]
    begins = np.flatnonzero((np.diff(of_row, prepend=-2) != 0) & (of_row >= 0))
    return [(int(begins[place]), f"batch {of_row[begins[place]]}") for place in evenly(len(begins), MOST_TICKS)]


def _caption(log: ParticipationLog, picture: Participation) -> str:
    caption = "Coloured: took part. "
    if picture.binned:
        users, rounds = (int(np.diff(starts).max()) for starts in (picture.row_starts, picture.column_starts))
        most = percent(picture.share.max())
        caption = f"A cell stands for up to {counted(users, 'user')} and {counted(rounds, 'round')}. "
        caption += f"The stronger its colour, the more took part: at most {most} of a cell. "
    times = picture.times
    low, middle, high = int(times.min()), int(np.median(times)), int(times.max())
    caption += f"A user took part in {low} to {high} of {counted(log.rounds, 'round')} (median {middle})."
    never = int(np.sum(times == 0))
    return f"{caption} {counted(never, 'user')} never took part." if never else caption


def _cuts(count: int, most: int) -> IntArray:
    """Return where to cut `count` things into at most `most` runs of nearly equal length."""
    parts = min(count, most)
    return np.arange(parts + 1) * count // max(parts, 1)
