"""`coterie ledger`: what a federation's ledger holds, whether it is sound, and its log as a file."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import Json, help_without_command, waiting
from coterie.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.ledger import Ledger, Round
    from coterie.ledger.summary import Summary

NARROWEST = 90
"""Columns that the table of rounds needs; a narrower terminal breaks the lines itself."""
BATCHES_SHOWN = 10
"""Batches that a person is shown; --json has them all."""
NAMES_SHOWN = 5


def _given(ledger: str) -> str:
    """Refuse to look for a ledger that was not named (typer's own refusal of it garbles --help)."""
    if not ledger:
        raise UsageError("say which ledger: its file, a run's folder, or a PostgreSQL URL")
    return ledger


app = typer.Typer(
    help="Look into the ledger of a federation: show, verify, export.\n\n"
    "LEDGER is a file, a run's folder (for its ledger.sqlite), or a PostgreSQL URL, postgresql://host/database?ledger="
    "name. None of these commands changes it.",
    callback=help_without_command,
    invoke_without_command=True,
    rich_markup_mode=None,
)

Location = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER", help="A file, a run's folder, or a PostgreSQL URL.", callback=_given, show_default=False
    ),
]


@app.command()
def show(
    ledger: Location = "",
    rounds: Annotated[
        str,
        typer.Option(help="How many of the last rounds: a number, or all (20 unless given).", show_default=False),
    ] = "20",
    json_: Json = False,
) -> None:
    """Show rounds, users and batches for a person, and the head for keeping elsewhere.

    Of the batches it shows those that were lost mid-round most often, and those that were asked least: where
    selection serves the least served first, these are seldom whole in time. Then come the retired ones.

    Examples:

      coterie ledger show runs/1

      coterie ledger show postgresql://ana@host/federation?ledger=photos --rounds all --json
    """
    from coterie.ledger import Ledger
    from coterie.ledger.summary import summarise

    last = _count(rounds)
    with waiting(f"Reading {_place(ledger)}"), Ledger.open(ledger, read_only=True) as found:
        summary = summarise(found, last)
        if json_:
            typer.echo(json.dumps(_record(found, summary), allow_nan=False))
        else:
            _print(found, summary)


@app.command()
def verify(
    ledger: Location = "",
    head: Annotated[
        str | None,
        typer.Option(
            help="The hash of an earlier head, kept elsewhere: it must be the hash of one of the records."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Check every record, trusting nothing, and name all that is wrong; exit with 1 if something is.

    Found are records that were edited, left out, moved or cut off, and such as break the rules. A ledger that was
    written anew as a whole is sound in itself: only --head, with a hash kept elsewhere, shows that.

    Examples:

      coterie ledger verify runs/1

      coterie ledger verify runs/1 --head 3f0b6c…
    """
    from coterie.ledger.verify import verify as verify_ledger

    kept = _hash(head)
    with waiting(f"Verifying {_place(ledger)}"):
        verdict = verify_ledger(ledger, kept)
    if json_:
        findings = [{"seq": each.seq, "kind": each.kind, "what": each.what} for each in verdict.findings]
        told = {"count": verdict.head.count, "hash": verdict.head.hash.hex()}
        typer.echo(
            json.dumps({"sound": verdict.sound, "head": told, "later": verdict.later, "findings": findings})
        )
    else:
        for each in verdict.findings:
            kind = f" ({each.kind})" if each.kind else ""
            typer.echo(_plain(f"record {each.seq}{kind}: {each.what}"))
        result = "Sound" if verdict.sound else f"Not sound, {len(verdict.findings)} findings"
        typer.echo(f"{result}: {verdict.head.count} records, head {verdict.head.hash.hex()}")
        if verdict.later is not None:
            typer.echo(f"The head kept elsewhere is there; {verdict.later} records came after it.")
    if not verdict.sound:
        raise typer.Exit(1)


@app.command()
def export(
    ledger: Location = "",
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write: .jsonl (keeps all users and rounds), .csv or .parquet (required)."),
    ] = None,
    known_only: Annotated[
        bool,
        typer.Option("--known-only", help="Write it although what some rounds gave away is not known."),
    ] = False,
) -> None:
    """Write the participation log to a file: what was learned, round by round, for any auditor.

    Rounds that ended without a report are written with what must be assumed, if they were sealed. Otherwise what
    they gave away is not known, which no log can say: audit the ledger itself, or export with --known-only.

    Examples:

      coterie ledger export runs/1 --out log.jsonl
    """
    from coterie.ledger import Ledger
    from coterie.logs import write_log
    from coterie.storage.files import check_writable

    if out is None:
        raise UsageError("say which file to write: --out log.jsonl, .csv or .parquet")
    check_writable(out)
    with waiting(f"Reading {_place(ledger)}"), Ledger.open(ledger, read_only=True) as found:
        if found.unknown_rounds and not known_only:
            raise UsageError(
                f"what round {_numbers(found.unknown_rounds)} gave away is not known, and a log cannot say so: "
                "its audit would promise too much; audit the ledger itself, or give --known-only"
            )
        log = found.log()
        write_log(log, out)
        typer.echo(f"{len(log.set_rounds)} learned sets of {log.rounds} rounds are in {out}.")
        if found.assumed_rounds:
            typer.echo(f"Assumed, for want of a report: round {_numbers(found.assumed_rounds)}.")
        if found.unknown_rounds:
            typer.echo(f"What these gave away is not known: round {_numbers(found.unknown_rounds)}.")


def _place(ledger: str) -> str:
    """Return a location for messages: an address can hold a password."""
    return "the ledger" if "://" in ledger else ledger


def _count(rounds: str) -> int | None:
    if rounds == "all":
        return None
    if not (rounds.isascii() and rounds.isdigit()):
        raise UsageError(f"--rounds is {rounds!r}: give a number of rounds, or all")
    return int(rounds)


def _hash(head: str | None) -> bytes | None:
    if head is None:
        return None
    try:
        kept = bytes.fromhex(head)
    except ValueError:
        kept = b""
    if len(kept) != 32:  # noqa: PLR2004 - SHA-256
        raise UsageError(f"--head is {head!r}: give the 64 hexadecimal digits that show or verify printed")
    return kept


def _record(ledger: Ledger, summary: Summary) -> dict[str, Any]:
    plan = ledger.plan
    return {
        "ledger": ledger.id,
        "place": ledger.place,
        "head": {"count": ledger.head.count, "hash": ledger.head.hash.hex()},
        "users": ledger.users,
        "waiting": summary.waiting,
        "plan": None if plan is None else {
            "number": ledger.plan_number,
            "privacy": plan.privacy,
            "batches": len(plan),
            "sizes": [int(plan.sizes.min()), int(plan.sizes.max())] if len(plan) else [],
            "charters": len(ledger.charters),
        },
        "rounds": {str(state): count for state, count in summary.rounds.items()},
        "next_round": ledger.next_round,
        "steps": ledger.steps,
        "assumed_rounds": ledger.assumed_rounds,
        "unknown_rounds": ledger.unknown_rounds,
        "last": [_round_record(each) for each in summary.last],
        "batches": [
            {"batch": batch, "asked": asked, "learned": learned, "lost": lost}
            for batch, (asked, learned, lost) in enumerate(
                zip(summary.asked.tolist(), summary.learned.tolist(), summary.lost.tolist(), strict=True)
            )
        ],
        "retired": [{"since": each.since, "users": each.users.tolist()} for each in summary.retired],
    }  # fmt: skip


def _round_record(each: Round) -> dict[str, Any]:
    return {
        "round": each.number,
        "state": str(each.state),
        "opened": _time(each.opened),
        "closed": None if each.closed is None else _time(each.closed),
        "plan": each.plan,
        "sealed": each.sealed,
        "protocol": each.protocol,
        "terms": each.terms,
        "coordinator": each.coordinator,
        "asked_users": 0 if each.cohort is None else len(each.cohort),
        "asked_batches": None if each.cohort is None or not each.plan else each.cohort.batches.tolist(),
        "learned_sets": [len(users) for users in each.learned],
        "assumed_sets": [len(users) for users in each.assumed],
        "unknown": each.unknown,
        "lost": {str(batch): reason for batch, reason in each.lost.items()},
        "reason": each.reason,
        "metrics": {name: value if math.isfinite(value) else None for name, value in each.metrics.items()},
        "checkpoints": dict(each.checkpoints),
    }


def _time(milliseconds: int, form: str | None = None) -> str:
    """Return a time as text; one that no calendar has, as it is."""
    try:
        time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return str(milliseconds)
    return time.strftime(form) if form else time.isoformat(timespec="milliseconds")


def _plain(text: str) -> str:
    r"""Return text that cannot steer a terminal.

    >>> print(_plain("ana\x1b[2J, Zoë"))
    ana\x1b[2J, Zoë
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _numbers(rounds: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, rounds[:20]))
    return shown if len(rounds) <= 20 else f"{shown} and {len(rounds) - 20} more"  # noqa: PLR2004 - a line's worth


def _print(ledger: Ledger, summary: Summary) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    console.width = max(console.width, NARROWEST)
    plan = ledger.plan
    console.print(f"{ledger.place}: {ledger.users} users, {ledger.next_round} rounds", soft_wrap=True)
    console.print(
        "No plan: rounds ask users one by one."
        if plan is None
        else f"Plan {ledger.plan_number}: {len(plan)} batches, T = {plan.privacy}, {len(ledger.charters)} with a "
        f"charter; {len(summary.retired)} retired; {summary.waiting} users wait for a plan."
    )
    if summary.last:
        console.print()
        console.print(_rounds_table(summary))
        console.print(", ".join(f"{count} {state}" for state, count in summary.rounds.items() if count))
    for rounds, what in (
        (ledger.assumed_rounds, "Ended without a report; every batch asked is taken as learned by itself: round"),
        (ledger.unknown_rounds, "Ended without a report and without a seal; what was learned is not known: round"),
    ):
        if rounds:
            console.print(f"{what} {_numbers(rounds)}", style="yellow")
    if len(summary.asked) and ledger.next_round:
        console.print()
        console.print("Batches lost most often, then asked least:")
        console.print(_batches_table(summary))
    for each in summary.retired[-BATCHES_SHOWN:]:
        names = ", ".join(_plain(ledger.names[user]) for user in each.users[:NAMES_SHOWN])
        more = f" and {len(each.users) - NAMES_SHOWN} more" if len(each.users) > NAMES_SHOWN else ""
        console.print(f"Retired before round {each.since}: {names}{more}", soft_wrap=True)
    console.print(
        f"\nHead: {ledger.head.hash.hex()} ({ledger.head.count} records). Keep it elsewhere.", soft_wrap=True
    )


def _rounds_table(summary: Summary) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading, side in (
        ("round", "right"),
        ("opened (UTC)", "left"),
        ("state", "left"),
        ("asked", "right"),
        ("learned", "right"),
        ("lost", "right"),
        ("protocol", "left"),
        ("why", "left"),
    ):
        table.add_column(heading, justify="right" if side == "right" else "left", no_wrap=heading != "why")
    for each in summary.last:
        sets = [len(users) for users in each.learned]
        protocol = f"{each.protocol}, sealed" if each.sealed else each.protocol
        table.add_row(
            str(each.number),
            _time(each.opened, "%Y-%m-%d %H:%M:%S"),
            str(each.state),
            "" if each.cohort is None else str(len(each.cohort)),
            f"{sum(sets)} in {len(sets)}" if len(sets) > 1 else str(sum(sets) or ""),
            str(len(each.lost) or ""),
            _plain(protocol),
            _plain(each.reason or "; ".join(sorted(set(each.lost.values())))),
        )
    return table


def _batches_table(summary: Summary) -> Table:
    """The batches that were lost most, and among the others those that were asked least."""
    import numpy as np
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("batch", "asked", "learned", "lost"):
        table.add_column(heading, justify="right")
    for batch in np.lexsort((summary.asked, -summary.lost))[:BATCHES_SHOWN].tolist():
        counts = (summary.asked[batch], summary.learned[batch], summary.lost[batch])
        table.add_row(str(batch), *map(str, counts))
    return table
