"""`coterie ledger`: what a federation's ledger holds, whether it is sound, and its log as a file."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import Json, help_without_command, waiting
from coterie.errors import UsageError
from coterie.values.text import counted, listing, printable

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.federation.ledger import Round, Snapshot
    from coterie.federation.ledger.history import BatchChange

BATCHES_SHOWN = 10
"""Batches that a person is shown; --json has them all."""
NAMES_SHOWN = 5


def _require_location(ledger: str) -> str:
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

LedgerArgument = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        help="A file, a run's folder, or a PostgreSQL URL.",
        callback=_require_location,
        show_default=False,
    ),
]


@app.command()
def show(
    ledger: LedgerArgument = "",
    rounds: Annotated[
        str,
        typer.Option(help="How many of the last rounds: a number, or all (20 unless given).", show_default=False),
    ] = "20",
    json_: Json = False,
) -> None:
    """Show rounds, users and batches, and the head to keep elsewhere.

    Of the batches it shows those that were lost mid-round most often, and those that were asked least: where
    selection serves the least served first, these are seldom whole in time. Then come the retired ones.

    Examples:

      coterie ledger show runs/1

      coterie ledger show postgresql://ana@host/federation?ledger=photos --rounds all --json
    """
    from coterie.federation.ledger import Ledger

    last = _count(rounds)
    with waiting(f"Reading {_place(ledger)}"), Ledger.open(ledger, read_only=True) as source:
        place, snapshot, durable = source.place, source.snapshot(), source.durable
    latest = snapshot.rounds[max(0, len(snapshot.rounds) - last) :] if last is not None else snapshot.rounds
    if json_:
        typer.echo(json.dumps({**_record(place, snapshot, latest), "durable": durable}, allow_nan=False))
    else:
        _print(place, snapshot, latest)
        if not durable:
            typer.echo("Not durable: the server has fsync off, and a power cut there can lose records.")


@app.command()
def verify(
    ledger: LedgerArgument = "",
    head: Annotated[
        str | None,
        typer.Option(
            help="The hash of an earlier head, kept elsewhere: it must be the hash of one of the records."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Check every record, trusting nothing, and name what is wrong.

    The exit code is 1 if something is. It finds records that were edited, left out, moved or cut off, and records
    that break the rules. A ledger that was written anew as a whole is sound in itself: only --head, with a hash
    kept elsewhere, shows that.

    Examples:

      coterie ledger verify runs/1

      coterie ledger verify runs/1 --head 3f0b6c…
    """
    from coterie.federation.ledger.ledger import verify as verify_ledger

    earlier = _hash(head)
    with waiting(f"Verifying {_place(ledger)}"):
        verdict = verify_ledger(ledger, earlier)
    if json_:
        findings = [asdict(each) for each in verdict.findings]
        end = {"count": verdict.head.count, "hash": verdict.head.hash.hex()}
        typer.echo(json.dumps({"sound": verdict.sound, "head": end, "later": verdict.later, "findings": findings}))
    else:
        for each in verdict.findings:
            kind = f" ({each.kind})" if each.kind else ""
            typer.echo(printable(f"record {each.seq}{kind}: {each.what}"))
        result = "Sound" if verdict.sound else f"Not sound, {len(verdict.findings)} findings"
        typer.echo(f"{result}: {verdict.head.count} records, head {verdict.head.hash.hex()}")
        if verdict.later is not None:
            typer.echo(f"The head kept elsewhere is there; {verdict.later} records came after it.")
    if not verdict.sound:
        raise typer.Exit(1)


@app.command()
def export(
    ledger: LedgerArgument = "",
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write: .jsonl (keeps all users and rounds), .csv or .parquet (required)."),
    ] = None,
) -> None:
    """Write the participation log to a file, for any auditor.

    It has what the server could open, round by round. Rounds that ended without a report are written with the
    worst that must be assumed: if they were sealed, every batch that was asked, otherwise every user that was
    asked, each by itself.

    Examples:

      coterie ledger export runs/1 --out log.jsonl
    """
    from coterie.federation.ledger import Ledger
    from coterie.files import check_writable
    from coterie.leakage.readers import write_log

    if out is None:
        raise UsageError("say which file to write: --out log.jsonl, .csv or .parquet")
    check_writable(out)
    with waiting(f"Reading {_place(ledger)}"), Ledger.open(ledger, read_only=True) as source:
        snapshot = source.snapshot()
    write_log(snapshot.log, out)
    typer.echo(f"{len(snapshot.log.set_rounds)} learned sets of {snapshot.log.rounds} rounds are in {out}.")
    for concerned, what in _remarks(snapshot):
        typer.echo(f"{what}: round {listing(map(str, concerned), 20)}.")


def _remarks(snapshot: Snapshot) -> list[tuple[tuple[int, ...], str]]:
    """Return the rounds that are not simply what was reported, and what they are counted as."""
    late = tuple(each.number for each in snapshot.rounds if each.late)
    remarks = (
        (snapshot.plain_rounds, "Plain: the server saw every user's update by itself"),
        (snapshot.assumed_rounds, "Ended without a report; every batch asked counts as learned by itself"),
        (snapshot.unknown_rounds, "Not known what was learned, and unsealed; every user counts as learned alone"),
        (late, "Sums that messages completed too late count"),
    )
    return [(rounds, what) for rounds, what in remarks if rounds]


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
        earlier = bytes.fromhex(head)
    except ValueError:
        earlier = b""
    if len(earlier) != 32:  # noqa: PLR2004 - SHA-256
        raise UsageError(f"--head is {head!r}: give the 64 hexadecimal digits that show or verify printed")
    return earlier


def _record(place: str, snapshot: Snapshot, rounds: tuple[Round, ...]) -> dict[str, Any]:
    import numpy as np

    plan = snapshot.plan
    return {
        "ledger": snapshot.id,
        "place": place,
        "head": {"count": snapshot.head.count, "hash": snapshot.head.hash.hex()},
        "users": snapshot.users,
        "waiting": snapshot.waiting,
        "plan": None if plan is None else {
            "number": snapshot.plan_number,
            "privacy": plan.privacy,
            "batches": len(plan),
            "sizes": [int(plan.sizes.min()), int(plan.sizes.max())] if len(plan) else [],
            "charters": len(snapshot.charters),
        },
        "rounds": {str(state): count for state, count in snapshot.states.items()},
        "next_round": snapshot.next_round,
        "steps": snapshot.steps,
        "assumed_rounds": snapshot.assumed_rounds,
        "unknown_rounds": snapshot.unknown_rounds,
        "plain_rounds": snapshot.plain_rounds,
        "files": dict(snapshot.files),
        "last": [_round_record(each) for each in rounds],
        "batches": [
            {"batch": batch, "asked": asked, "included": included, "lost": lost}
            for batch, (asked, included, lost) in enumerate(
                np.stack((snapshot.times_asked, snapshot.times_included, snapshot.times_lost), axis=1).tolist()
            )
        ],
        "retired": [_change(each) for each in snapshot.retired],
        "overrides": [_change(each) for each in snapshot.overrides],
    }  # fmt: skip


def _change(each: BatchChange) -> dict[str, Any]:
    return {"since": each.since, "users": each.users.tolist(), "reason": each.reason}


def _round_record(each: Round) -> dict[str, Any]:
    from coterie.federation.ledger.history import time_text

    return {
        "round": each.number,
        "state": str(each.state),
        "opened": time_text(each.opened, exact=True),
        "closed": None if each.closed is None else time_text(each.closed, exact=True),
        "plan": each.plan,
        "sealed": each.sealed,
        "protocol": each.protocol,
        "terms": each.terms,
        "coordinator": each.coordinator,
        "asked_users": 0 if each.cohort is None else len(each.cohort),
        "asked_batches": None if each.cohort is None or not each.plan else each.cohort.batches.tolist(),
        "learned_sets": [len(users) for users in each.learned],
        "late_sets": each.late,
        "alone": len(each.alone),
        "assumed": each.assumed,
        "unknown": each.unknown,
        "lost": {str(batch): reason for batch, reason in each.lost.items()},
        "reason": each.reason,
        "metrics": {name: value if math.isfinite(value) else None for name, value in each.metrics.items()},
        "files": dict(each.files),
    }


def _print(place: str, snapshot: Snapshot, rounds: tuple[Round, ...]) -> None:
    from coterie.cli.terminal import NARROWEST, plain_console

    console = plain_console(NARROWEST)
    plan = snapshot.plan
    console.print(f"{place}: {snapshot.users} users, {snapshot.next_round} rounds", soft_wrap=True)
    console.print(
        "No plan: rounds ask users one by one."
        if plan is None
        else f"Plan {snapshot.plan_number}: {len(plan)} batches, T = {plan.privacy}, {len(snapshot.charters)} "
        f"with a charter; {len(snapshot.retired)} retired; {snapshot.waiting} users wait for a plan."
    )
    if rounds:
        console.print()
        console.print(_rounds_table(rounds))
        console.print(", ".join(f"{count} {state}" for state, count in snapshot.states.items() if count))
    for concerned, what in _remarks(snapshot):
        console.print(f"{what}: round {listing(map(str, concerned), 20)}", style="yellow")
    if len(snapshot.times_asked) and snapshot.next_round:
        console.print()
        console.print("Batches lost most often, then asked least:")
        console.print(_batches_table(snapshot))
    for changes, done in ((snapshot.retired, "Retired"), (snapshot.overrides, "Overridden by its owners")):
        for each in changes[-BATCHES_SHOWN:]:
            names = listing((printable(snapshot.names[user]) for user in each.users), NAMES_SHOWN)
            why = f" ({printable(each.reason)})" if each.reason else ""
            console.print(f"{done} before round {each.since}: {names}{why}", soft_wrap=True)
    console.print(
        f"\nHead: {snapshot.head.hash.hex()} ({snapshot.head.count} records). Keep it elsewhere.", soft_wrap=True
    )


def _rounds_table(rounds: tuple[Round, ...]) -> Table:
    from coterie.cli.terminal import table_of
    from coterie.federation.ledger.history import time_text

    columns = ("round", "opened (UTC)", "state", "asked", "learned", "lost", "protocol", "why")
    rows = []
    for each in rounds:
        sets = [len(users) for users in each.exposure]
        learned = f"{sum(sets)} in {len(sets)}" if len(sets) > 1 else sum(sets) or ""
        asked = "" if each.cohort is None else len(each.cohort)
        protocol, why = printable(each.aggregation), printable(_reasons(each))
        rows.append(
            (each.number, time_text(each.opened), each.state, asked, learned, len(each.lost) or "", protocol, why)
        )
    return table_of(columns, rows, left=("opened (UTC)", "state", "protocol", "why"), wrapped=("why",))


def _reasons(each: Round) -> str:
    """Return why a round has no result or lost batches, and how many users are proven to have lied in it."""
    from coterie.federation.coordinator import LIARS

    reasons = [each.reason] if each.reason else sorted(set(each.lost.values()))
    liars = int(each.metrics.get(LIARS, 0))
    if liars:
        reasons.append(f"{counted(liars, 'user')} broke the protocol")
    return "; ".join(reasons)


def _batches_table(snapshot: Snapshot) -> Table:
    """The batches that were lost most, and among the others those that were asked least."""
    import numpy as np

    from coterie.cli.terminal import table_of

    worst = np.lexsort((snapshot.times_asked, -snapshot.times_lost))[:BATCHES_SHOWN]
    rows = zip(
        worst,
        *(counts[worst] for counts in (snapshot.times_asked, snapshot.times_included, snapshot.times_lost)),
        strict=True,
    )
    return table_of(("batch", "asked", "included", "lost"), rows)
