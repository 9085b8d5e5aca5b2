"""What a reader understood of a log: which columns, how rounds were made, what was left out."""

from dataclasses import dataclass, field

from coterie.values import ParticipationLog

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars", " ": "blanks"}


@dataclass(frozen=True)
class Understanding:
    """How a log was understood, so that its owner can see whether the guess is right.

    `form` is "long" (a row for each user and round), "wide" (a column for each user), "transposed" (a column for
    each round) or "sets" (the users of a round in a list). `exact` says that nothing was guessed: the file has one
    of Coterie's own forms.

    >>> understanding = Understanding("CSV", "long", "its number", "round", "cid", delimiter=";")
    >>> understanding.sentences()[0]
    "CSV with semicolons, a row for each user and round: rounds from the column 'round', users from 'cid'."
    """

    syntax: str
    form: str
    round_rule: str
    round_column: str | None = None
    user_column: str | None = None
    set_column: str | None = None
    delimiter: str | None = None
    compression: str | None = None
    ignored_columns: tuple[str, ...] = ()
    duplicates: int = 0
    left_out: int = 0
    """Rows that say that their user did not take part."""
    warnings: tuple[str, ...] = ()
    exact: bool = False

    def sentences(self) -> list[str]:
        """Say what was understood, in plain sentences; the warnings are apart."""
        sentences = [f"{self._syntax()}, {self._form()}."]
        if self.round_rule:
            sentences.append(f"A round: {self.round_rule}.")
        if self.ignored_columns:
            sentences.append(f"Not used: {_listing(self.ignored_columns)}.")
        if self.left_out:
            sentences.append(f"{_rows(self.left_out)} said that the user did not take part.")
        return sentences

    def _syntax(self) -> str:
        name = self.syntax
        if self.delimiter is not None and self.delimiter != ",":
            name += f" with {_DELIMITERS.get(self.delimiter, repr(self.delimiter))}"
        return name if self.compression is None else f"{name}, packed with {self.compression}"

    def _form(self) -> str:
        match self.form:
            case "wide":
                rounds = f"rounds from {self.round_column!r}" if self.round_column else "a round in each row"
                return f"a column for each user: {rounds}"
            case "transposed":
                return f"a column for each round: users from {self.user_column!r}"
            case "sets":
                return "the users of a round in a list" + (
                    f": rounds from {self.round_column!r}, users from {self.user_column!r}"
                    if self.round_column and self.user_column
                    else ""
                )
        return (
            f"a row for each user and round: rounds from the column {self.round_column!r}, users from "
            f"{self.user_column!r}" + (f", learned sets from {self.set_column!r}" if self.set_column else "")
        )


@dataclass(frozen=True)
class LogFile:
    """A participation log with what was understood of its file, and the digest of the bytes that were read."""

    log: ParticipationLog
    understanding: Understanding = field(repr=False)
    name: str
    sha256: str


def _listing(names: tuple[str, ...], most: int = 8) -> str:
    text = ", ".join(names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most} more"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
