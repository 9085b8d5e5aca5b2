"""What people vary of a spec, by the short names that the command line and `coterie.run` have for it."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from coterie.errors import UsageError
from coterie.experiment.spec import Spec
from coterie.training.data.own import count_users

FIELDS = {
    "data": "data.source",
    "users": "data.users",
    "partition": "data.partition",
    "per_round": "selection.per_round",
    "scheme": "selection.scheme",
    "dropout": "selection.dropout",
    "lost": "selection.lost",
    "model": "training.model",
    "epochs": "training.epochs",
    "minibatch": "training.minibatch",
    "learning_rate": "training.learning_rate",
    "device": "training.device",
    "rounds": "training.rounds",
    "aggregation": "aggregation.protocol",
    "sealed": "aggregation.sealed",
    "keep_aggregates": "keep_aggregates",
    "seed": "seed",
}
"""The field of a spec that each short name stands for."""


def with_options(spec: Spec, options: Mapping[str, Any]) -> Spec:
    """Return a spec with other values under short names; a folder of data says itself how many users it has.

    >>> spec = with_options(Spec(), {"rounds": 6, "learning_rate": 0.05})
    >>> spec.training.rounds, spec.training.learning_rate
    (6, 0.05)
    """
    for name in options:
        if name not in FIELDS:
            near = get_close_matches(name, FIELDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FIELDS)}"
            raise UsageError(f"a run has no option {name!r}; {hint}")
    changes = {FIELDS[name]: value for name, value in options.items()}
    source = Path(options.get("data", spec.data.source))
    if source.is_dir():
        changes["data.source"] = str(source.resolve())  # so that a resumed run finds it from anywhere
        if str(source) != spec.data.source and "users" not in options:  # the spec's number is of other data
            changes["data.users"] = count_users(source)
    spec = spec.changed(changes)
    _refuse_what_has_no_effect(spec, options)
    return spec


def _refuse_what_has_no_effect(spec: Spec, options: Mapping[str, Any]) -> None:
    """Refuse an option that would silently change nothing."""
    if "partition" in options and Path(spec.data.source).is_dir():
        raise UsageError(
            f"--partition has no effect on {spec.data.source}: its files say who holds what; leave it out"
        )
    if "sealed" in options and spec.aggregation.protocol == "plain":
        raise UsageError("--unsealed has no effect with plain aggregation, which has no seal; leave it out")
    if "scheme" in options and spec.selection.plan:
        raise UsageError(
            f"--scheme and --privacy have no effect on the plan {spec.selection.plan}, which the spec names; "
            "leave them out, or selection.plan"
        )
