"""The names that one would guess, below the package's own; and no name that has to be guessed."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.selection.simulation import Scheme

RIDDLES = frozenset(
    {
        "told", "shown", "found", "kept", "heard", "said", "meant", "gathered", "judged", "gone", "given", "taken",
        "made", "begun", "ways", "locked", "pressed", "slopes", "slant", "fates",
    }
)  # fmt: skip
"""What happened to a thing, or a picture of it, where its name should say what it is."""


def test_every_name_is_there():
    """Each name of the package leads to something, and `dir` lists it."""
    assert all(getattr(coterie, name) is not None for name in coterie.__all__)
    assert set(coterie.__all__) <= set(dir(coterie))
    with pytest.raises(AttributeError, match="no attribute 'plam'"):
        coterie.plam  # noqa: B018


def test_a_call_brings_only_what_it_needs():
    """Planning imports no PyTorch, no ledger and nothing that draws."""
    code = (
        "import sys, coterie; coterie.plan(users=12, per_round=4, dropout=0.1); "
        "print({'torch', 'sqlite3', 'matplotlib'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "set()\n"


def test_results_show_themselves_and_give_columns():
    """A trade-off and a simulation are tables in a notebook, and arrays for a data frame."""
    trade_off = coterie.plan(users=24, per_round=6, dropout=[0.1, 0.4])
    result = coterie.simulate(users=24, per_round=6, dropout=[0.1, 0.4], rounds=5, trials=2)
    for each, rows in ((trade_off, len(trade_off.options)), (result, len(result.schemes))):
        assert each._repr_html_().count("<tr") == rows + 1
        columns = each.columns
        assert {len(column) for column in columns.values()} == {rows}
        assert all(isinstance(column, np.ndarray) for column in columns.values())
    assert trade_off.plan.privacy == trade_off.recommended.privacy
    assert result.curve("random", "cardinality")[-1] == result.columns["cardinality"][0]


def test_what_is_missing_is_asked_for():
    """Calls without users, or with two descriptions of their availability, say what they lack."""
    for call in (coterie.plan, coterie.simulate):
        with pytest.raises(coterie.UsageError, match="in one way"):
            call(users=12, per_round=4)
        with pytest.raises(coterie.UsageError, match="how many users"):
            call(per_round=4, dropout=0.1)


def test_what_is_not_installed_or_no_log_is_said():
    """Without PyTorch a run says what to install; an audit of something that is no log says what to give."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import coterie\n"
        "for call in (lambda: coterie.run(), lambda: coterie.audit(5)):\n"
        "    try:\n"
        "        call()\n"
        "    except coterie.UsageError as error:\n"
        "        print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    without_torch, no_log = run.stdout.splitlines()
    assert without_torch.startswith("coterie.run needs PyTorch, which is not installed: pip install")
    assert no_log.startswith("the log is 5; give the path of a log")


def test_a_selector_of_ones_own_is_simulated_beside_named_schemes():
    """`Scheme` puts a selector under a name; both are measured."""
    plan = coterie.BatchPlan.from_batches(12, 3, np.arange(12).reshape(4, 3))
    selector = coterie.BatchSelector(plan, per_round=6)
    result = coterie.simulate(
        users=12, per_round=6, dropout=0.1, rounds=20, trials=2, schemes=[Scheme("mine", selector), "random"]
    )
    assert result.schemes == ("random", "mine")
    assert result.columns["strong_low"].tolist() == [1, 3]
    with pytest.raises(coterie.UsageError, match="a scheme is given twice: random, random"):
        coterie.simulate(users=12, per_round=6, dropout=0.1, schemes=["random", Scheme("random", selector)])


def names_in_source():
    """Yield (kind, name, file) of every class, alias of a type, function, parameter and field of the package."""
    for path in sorted(Path(coterie.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [each.id for each in targets if isinstance(each, ast.Name)]
            yield from (("class", name, path) for name in names if name[0].isupper() and not name.isupper())
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name=name):
                    yield "class", name, path
                    fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
                    yield from (("field", each.id, path) for each in fields if isinstance(each, ast.Name))
                case ast.FunctionDef(name=name, args=given) | ast.AsyncFunctionDef(name=name, args=given):
                    yield "function", name, path
                    every = (*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg)
                    yield from (("parameter", each.arg, path) for each in every if each is not None)


def test_one_name_one_class():
    """A search for a class or the alias of a type finds one: no two files use the same name."""
    classes = Counter(name for kind, name, _ in names_in_source() if kind == "class")
    assert len(classes) > 200
    assert [name for name, count in classes.items() if count > 1] == []


def test_no_name_is_a_riddle():
    """Classes, functions, parameters and fields say what they are, not what happened to them."""
    riddles = [each for each in names_in_source() if each[1].strip("_").lower() in RIDDLES]
    assert riddles == []
