"""`coterie audit`: what has a federation given away, from the log of any platform?"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import Json
from coterie.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from rich.status import Status

    from coterie.values import BatchPlan, IntArray, ParticipationLog

_SQLITE = b"SQLite format 3\0"  # how every file of SQLite's begins

EXIT_NOT_MET = 1
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Source:
    """A log to audit, with a name for every user in it: what the server learned, and where that is not known.

    `users` is the number of all users, if more than the log has; `sha256` the digest of what was read, of a
    ledger the hash of its last record. `plan` is the one plan that a ledger ever had.
    """

    place: str
    log: ParticipationLog
    sha256: str
    digest: str = "sha256"
    """What the digest is of: a file's sha256, or the head of a ledger."""
    users: int | None = None
    unknown: tuple[int, ...] = ()
    assumed: tuple[int, ...] = ()
    shown: int = 0
    plan: BatchPlan | None = None


def audit(
    log: Annotated[
        str,
        typer.Argument(
            help="A .csv, .parquet or .jsonl file; or a ledger: a file, a run's folder or a PostgreSQL URL.",
            metavar="LOG",
            show_default=False,
        ),
    ] = "",
    users: Annotated[
        int | None, typer.Option(help="N, the number of all users, also those who never took part.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="J, the number of all rounds from the log's first one on, with a result or not."),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Hold the log against this plan: which rounds split a batch. A ledger brings its own."),
    ] = None,
    window: Annotated[int | None, typer.Option(help="Also the level within any so many rounds in a row.")] = None,
    colluders: Annotated[
        str | None,
        typer.Option(
            help="Users who tell the server their updates: how many (3), or who (ann,bob; one user: ann,)."
        ),
    ] = None,
    require: Annotated[
        int | None, typer.Option(help="Exit with 1 unless the strong level is at least this.")
    ] = None,
    budget: Annotated[
        float, typer.Option(help="Seconds for narrowing the weak level (10 unless given).", show_default=False)
    ] = 10.0,
    seed: Annotated[
        int, typer.Option(help="Seed for what is drawn; it decides no proof (0 unless given).", show_default=False)
    ] = 0,
    html: Annotated[Path | None, typer.Option(help="Also write the verdict as a page for a browser.")] = None,
    all_combinations: Annotated[
        bool,
        typer.Option("--all-combinations", help="Combinations for all isolated users, not the first 20 only."),
    ] = False,
    json_: Json = False,
) -> None:
    """Say what a participation log has given away, with proofs.

    The strong privacy level: whatever the server computes from all rounds' sums, users come in groups of at
    least so many that it cannot tell apart. The weak level: no combination of sums covers fewer users; it is a
    bracket where one number cannot be proven in time. Isolated users: those whose update alone is a
    combination of sums, with the round since which it is, and the combination.

    The log has the columns round,user (and set, if a round has several sums), or round and a column of 0 and 1
    for each user. Ctrl-C ends with what is proven so far.

    Exit code: 0, or 1 if the level is below --require, or 2 for bad input.

    Examples:

      coterie audit participation.csv

      coterie audit participation.csv --users 500 --require 8 --html report.html

      coterie audit runs/1 --require 4 --json

      coterie audit log.parquet --plan plan.json --colluders 3 --window 100
    """
    import math

    import numpy as np

    from coterie import __version__
    from coterie.audit import Question, examine
    from coterie.audit.record import record
    from coterie.cli.options import check_seed, waiting
    from coterie.storage.plans import read_plan

    if html is not None:
        from coterie.report.page.html import check_page_path

        check_page_path(html)
    if not 0 <= budget < math.inf:
        raise UsageError(f"--budget is {budget}: give seconds, 0 or more")
    check_seed(seed)
    for option, value in (("--users", users), ("--rounds", rounds), ("--window", window), ("--require", require)):
        if value is not None and value < 1:
            raise UsageError(f"{option} is {value}: give at least 1")
    with waiting("Reading the log"):
        source = read_any_log(log, rounds)
        agreed = source.plan if plan is None else read_plan(plan)
    count, named = _colluders(colluders, source.log)
    # The server subtracts what named colluders tell it: their columns fall away.
    judged = source.log.only(np.setdiff1d(np.arange(source.log.users), named)) if named else source.log
    everyone = source.users if users is None else users
    if everyone is not None and everyone < (source.users or source.log.users):
        told = source.users or source.log.users
        raise UsageError(f"--users is {users}, but {source.place} has {told}; give the number of all users")
    question = Question(
        users=None if everyone is None else everyone - len(named),
        window=window,
        colluders=count,
        required=require,
        plan=agreed,
        planned=None if agreed is None else _planned(judged, agreed),
        unknown=source.unknown,
        assumed=source.assumed,
        shown=source.shown,
        combinations=None if all_combinations else Question.combinations,
    )
    with _watched(budget) as watch:
        verdict = examine(
            judged,
            question,
            rng=np.random.default_rng(seed),
            left=watch.left,
            stopped=lambda: watch.stopped,
            tell=watch.tell,
        )
    if json_:
        about = {"log_sha256": source.sha256, "version": __version__}
        typer.echo(json.dumps({**record(verdict), **about}))
    else:
        from coterie.cli.audit_summary import print_verdict

        print_verdict(verdict, source.place, f"{source.digest} {source.sha256}")
    if html is not None:
        from coterie.report.audit.page import audit_page
        from coterie.report.page.html import write_page

        told_by = [(source.log.names or ())[user] for user in named]
        write_page(audit_page(verdict, source=source.place, digest=source.sha256, told=told_by), html)
    if watch.stopped:
        raise typer.Exit(EXIT_INTERRUPTED)
    if verdict.met is False:
        raise typer.Exit(EXIT_NOT_MET)


def read_any_log(place: str, rounds: int | None) -> Source:
    """Read the log at a place: a file of a participation log, or a ledger."""
    if not place:
        raise UsageError("say which log: a .csv, .parquet or .jsonl file, a run's folder, or a ledger")
    from hashlib import file_digest

    from coterie.ledger.location import FILE, is_url
    from coterie.logs import read_log
    from coterie.storage.files import reading

    path = Path(place)
    if path.is_dir() and not (path / FILE).exists():
        raise UsageError(f"{place} is not a run's folder: it has no {FILE}; give a log, or a ledger")
    if is_url(place) or path.is_dir():
        return _from_ledger(place, rounds)
    with reading(path), path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            return _from_ledger(place, rounds)
        file.seek(0)
        digest = file_digest(file, "sha256").hexdigest()
    return _named(place, read_log(path, rounds=rounds), digest)


def _from_ledger(place: str, rounds: int | None) -> Source:
    """Read what a ledger's server learned; rounds that were cut off count as the worst, or as unknown."""
    from coterie.ledger import Ledger

    with Ledger.open(place, read_only=True) as ledger:
        log = ledger.log()
        if rounds is not None and rounds != log.rounds:
            raise UsageError(f"--rounds is {rounds}, but {ledger.place} has {log.rounds}; leave it out")
        plan = ledger.plan if ledger.plan_number == 1 else None
        return Source(
            ledger.place,
            log,
            ledger.head.hash.hex(),
            digest="head",
            unknown=ledger.unknown_rounds,
            assumed=ledger.assumed_rounds,
            shown=sum(round_.protocol == "plain" for round_ in ledger.stream()),
            plan=plan,
        )


def _named(place: str, log: ParticipationLog, sha256: str) -> Source:
    """Give users without a name their number; those who never took part are counted and not written out."""
    import numpy as np

    from coterie.values import ParticipationLog

    if log.names is not None:
        _warn_of_like_names(log.names)
        return Source(place, log, sha256)
    seen, members = np.unique(log.members, return_inverse=True)
    names = tuple(map(str, seen.tolist()))
    shown = ParticipationLog(len(seen), log.rounds, log.set_rounds, log.starts, members, names, log.first)
    return Source(place, shown, sha256, users=log.users)


def _warn_of_like_names(names: tuple[str, ...]) -> None:
    """Say on standard error that names may be one user's: a user under two names makes the level look higher."""
    import unicodedata

    first: dict[str, str] = {}
    for name in names:
        like = first.setdefault(unicodedata.normalize("NFKC", name).strip().casefold(), name)
        if like != name:
            typer.echo(
                f"coterie: warning: {like!r} and {name!r} count as two users; if they are one, write them alike, "
                "or the level comes out too high",
                err=True,
            )
            return


def _colluders(text: str | None, log: ParticipationLog) -> tuple[int, list[int]]:
    """Return how many colluders there are wherever they stand, and the numbers of those named."""
    if text is None:
        return 0, []
    if "," not in text:
        if text.isascii() and text.isdigit():
            return int(text), []
        text += ","
    names = [name.strip() for name in text.split(",") if name.strip()]
    number = {name: index for index, name in enumerate(log.names or ())}
    for name in names:
        if name not in number:
            raise UsageError(
                f"--colluders names {name!r}, who is not in the log; give names as the log writes them"
            )
    if len(set(names)) >= log.users:
        raise UsageError("--colluders names everyone in the log; nobody is left to expose")
    return 0, [number[name] for name in names]


def _planned(log: ParticipationLog, plan: BatchPlan) -> IntArray:
    """Return each user's number in the plan, -1 for a user it does not have."""
    import numpy as np

    number = {name: index for index, name in enumerate(plan.names or map(str, range(plan.users)))}
    found = np.array([number.get(name, -1) for name in log.names or ()], dtype=np.int64)
    if np.all(found < 0):
        raise UsageError("no user of the log is in the plan; give the plan of this log, with the same names")
    return found


class _Watch:
    """The time that is left, whether Ctrl-C was pressed, and what is being done."""

    def __init__(self, budget: float, status: Status) -> None:
        self._budget = budget
        self._status = status
        self._end: float | None = None
        self.stopped = False

    def left(self) -> float:
        """Return the seconds left of the budget, which begins at the first question."""
        import time

        if self._end is None:
            self._end = time.monotonic() + self._budget
        return self._end - time.monotonic()

    def tell(self, what: str) -> None:
        """Show what is being done."""
        from rich.text import Text

        self._status.update(Text(f"Looking at {what} … (Ctrl-C: enough)"))

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """End the work at the next chance; a second Ctrl-C ends the command."""
        import signal

        self.stopped = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _watched(budget: float) -> Iterator[_Watch]:
    """Show progress on standard error, and let Ctrl-C end the work early instead of losing it."""
    import signal

    from rich.console import Console

    with Console(stderr=True).status("") as status:
        watch = _Watch(budget, status)
        before = signal.signal(signal.SIGINT, watch.interrupt)
        try:
            yield watch
        finally:
            signal.signal(signal.SIGINT, before)
