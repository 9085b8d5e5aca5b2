"""A spec as a TOML file for a person: every field with its value and its meaning, from the spec's docstrings."""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from itertools import pairwise
from typing import Any

from coterie.experiment.spec import Spec

_WIDTH = 100


@dataclass(frozen=True)
class Field:
    """A field of a spec: its dotted name, its value, and what it means."""

    name: str
    value: Any
    meaning: str


def spec_fields(spec: Spec) -> Iterator[Field]:
    """Yield every field of a spec, in order.

    >>> next(spec_fields(Spec())).name
    'seed'
    """
    return _fields(spec, "")


def _fields(table: Any, path: str) -> Iterator[Field]:  # noqa: ANN401 - a table of a spec
    meanings = _meanings(type(table))
    for field in fields(table):
        value = getattr(table, field.name)
        if is_dataclass(value):
            yield from _fields(value, f"{path}{field.name}.")
        else:
            yield Field(f"{path}{field.name}", value, meanings[field.name])


def commented_spec(spec: Spec) -> str:
    """Return a spec as TOML in which a comment says what each field means.

    >>> print(commented_spec(Spec()).splitlines()[2])
    # Decides everything that is drawn: data, model, minibatches, who is away, who is lost, rounding.
    """
    lines = ["# What decides a run of coterie: coterie run SPEC.toml. What a file leaves out has its default."]
    table = ""
    for field in spec_fields(spec):
        parent, _, name = field.name.rpartition(".")
        if parent != table:
            title = _first_line(type(getattr(spec, parent)))
            lines += ["", "", f"[{parent}]  # {title}"]
            table = parent
        lines += ["", *_comment(field.meaning), f"{name} = {toml_value(field.value)}"]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:  # noqa: ANN401 - whatever a spec holds
    """Return a value as TOML writes it.

    >>> toml_value(((400, 0.4),)), toml_value("T4"), toml_value(True)
    ('[[400, 0.4]]', '"T4"', 'true')
    """
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _meanings(kind: type) -> dict[str, str]:
    """Return the docstring that follows each field of a dataclass, its parents' too."""
    meanings: dict[str, str] = {}
    for each in reversed([each for each in kind.__mro__ if is_dataclass(each)]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, text in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                meanings[field.target.id] = " ".join(str(text.value.value).split())
    return meanings
