"""What to do after an audit: it depends on what it says."""

import shlex
from collections.abc import Iterator

from coterie.audit.engine import MOST_CLASSES
from coterie.audit.verdict import Verdict
from coterie.report.page.blocks import Block, Commands, Points
from coterie.values.words import counted, printable


def advice_blocks(verdict: Verdict) -> tuple[Block, ...]:
    """Return what to do, most urgent first, and what to type for it."""
    return Points(tuple(_steps(verdict))), Commands(tuple(_commands(verdict)))


def _steps(verdict: Verdict) -> Iterator[tuple[str, str]]:
    if verdict.isolated:
        yield "Treat as disclosed", _DISCLOSED
    if verdict.judged.plain:
        yield "Encrypt the aggregation", _PLAIN
    if not verdict.certain:
        yield "Settle the unknown rounds", _UNKNOWN
    yield from _grouping(verdict)
    required, colluders = verdict.question.required, verdict.question.colluders
    if required is not None and colluders:
        size = required + colluders
        yield "Make room for colluders", _ROOM.format(required=required, colluders=colluders, size=size)
    coming = verdict.forecast
    if verdict.strong == 1 and coming is not None and coming.first_isolated.low:
        yield "Stop in time", _STOP.format(counted(coming.first_isolated.low, "further round"))
    if not verdict.isolation_known and verdict.certain:
        yield "Decide who is isolated", _UNDECIDED


def _grouping(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Say what to do about who takes part together."""
    if not verdict.learned:
        yield "Check the log", _EMPTY
    elif verdict.breaches:
        yield "Require the seal", _SEAL
        if any(breach.missing for breach in verdict.breaches):
            yield "Retire what was split", _RETIRE
    elif verdict.strong > 1:
        yield "Keep groups whole", _KEEP.format(counted(verdict.strong, "user"))
    elif verdict.evidence.plan is None:
        yield "Choose whole batches", _BATCHES


def _commands(verdict: Verdict) -> Iterator[tuple[str, str]]:
    question, log = verdict.question, place(verdict)
    fallen = verdict.learned and (verdict.strong == 1 or verdict.strong_left < (question.required or 1))
    if fallen and verdict.evidence.plan is None:
        yield _plan_command(verdict), "A plan of batches for your devices; ONLINE.csv says who was online when."
    if verdict.learned and not verdict.weak.exact:
        yield f"coterie audit {log} --budget 600", "The same audit with ten minutes to narrow the weak level."
    if len(verdict.isolated) > 1:
        yield (
            f"coterie audit {log} --json --all-combinations",
            "Every isolated user with the whole proof, for programs.",
        )
    if not verdict.certain:
        yield f"coterie ledger verify {log}", "Whether the ledger is whole and unchanged, record by record."
    # A level never rises again, so a log that fell is not worth watching; what comes after it is.
    later, meaning = (log, "Again after every round.")
    if fallen:
        later, meaning = "LATER", "The rounds after this log, by themselves."
    plan = " --plan plan.json" if fallen else ""
    level = question.required or ("T" if fallen or not verdict.learned else verdict.strong)
    yield f"coterie audit {later}{plan} --require {level}", f"{meaning} The exit code is 1 if the level is below."


def place(verdict: Verdict) -> str:
    """Return the log's place as one would type it."""
    nameless = verdict.source is None or verdict.source.place == "standard input"
    return "LOG" if nameless or verdict.source is None else shlex.quote(printable(verdict.source.place))


def _plan_command(verdict: Verdict) -> str:
    log, required = verdict.log, verdict.question.required
    per_round = max(round(verdict.measures.cardinality * log.rounds / max(log.completed, 1)), 2)
    privacy = f" --privacy {required}" if required is not None and 1 < required <= per_round else ""
    return f"coterie plan --per-round {per_round}{privacy} --availability ONLINE.csv --out plan.json"


_DISCLOSED = (
    "A level never rises again, and nothing takes a sum back. Treat the updates of the isolated users as known to "
    "the server, and to whoever may hold its records."
)
_PLAIN = (
    "Plain aggregation hides nothing. Choose a secure one (`--aggregation secagg+`, or `open` with batches) for "
    "the next round."
)
_UNKNOWN = (
    "Find out what the server learned in them. If nobody can, count every set of users that was asked there as "
    "learned, and audit again."
)
_BATCHES = (
    "Put users into fixed batches that take part whole or not at all. That protects what is sent from then on; "
    "what this log gave away stays given away."
)
_KEEP = (
    "The level stays as long as each group takes part whole or not at all: groups of at least {} here. New users "
    "form groups of their own; when a user leaves for good, the others of the group stop too."
)
_ROOM = "A level of {required} that {colluders} colluders do not break takes groups of {size} users or more."
_STOP = (
    "Until batches are in place, run fewer than {}: in the simulation hardly anybody was isolated before. That is "
    "an estimate, and no protection."
)
_SEAL = (
    "The plan was broken; nothing but the server's honesty stood behind it. With the seal every user of a batch "
    "adds masks that cancel only in the sum of the whole batch, so an incomplete batch gives noise and not a sum."
)
_RETIRE = (
    "If the missing users are gone for good, stop asking the rest of their batch. A sum without them, beside one "
    "with them, tells the two parts apart."
)
_UNDECIDED = (
    f"Run the audit again and let it end. With more than {MOST_CLASSES} different users it is not tried: then the "
    "strong level is what counts."
)
_EMPTY = "It names no sum. Is it the right file, with a row for every user in every round's sum?"
