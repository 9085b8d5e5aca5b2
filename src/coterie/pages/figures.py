"""Figures, each drawn from a record (a plain dictionary, as the commands write it with --json)."""

import csv
import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import cycle, dropwhile
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import UsageError
from coterie.files import atomic_write, check_writable, write_file
from coterie.lab.experiments.folder import RoundRow
from coterie.pages.deviation import DeviationTable, outcome_note

FORMATS = (".png", ".svg")
# Okabe and Ito's colours: told apart also by people who do not see all colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#767676"
# In an SVG alone: letters and axes that are light where the scheme is dark; the ground is the page's own.
DARK = """<style>@media (prefers-color-scheme: dark) {
 text { fill: #d6d9de !important }
 [style*="stroke: #000000"] { stroke: #a3a9b2 !important }
 [style*="fill: #000000"] { fill: #d6d9de !important }
}</style>
"""
KEY_METRICS = {
    "strong": "strong privacy level T",
    "fairness_gap": "fairness gap F",
    "cardinality": "users aggregated per round, C",
}
"""The measures of fig:key_metrics, and what stands above each panel."""
LARGEST_LINEAR_LEVEL = 40
FEW_POINTS = 20
"""Up to this many points of a line are marked."""


def check_figure_path(path: Path) -> None:
    """Refuse a picture file that could not be written, before any work is done for it."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path} is neither a .png nor a .svg file; name the picture so that it ends in one")
    if not can_draw():
        raise UsageError("pictures need matplotlib: pip install 'coterie[report]'")
    check_writable(path)


def can_draw() -> bool:
    """Return whether matplotlib, which draws the pictures, is installed."""
    return find_spec("matplotlib") is not None


@contextmanager
def figure_file(path: Path, width: float, height: float, columns: int = 1, rows: int = 1) -> Iterator[Any]:
    """Give a figure's axes in the project's style, and save it to `path` when the drawing went well."""
    check_figure_path(path)
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=COLOURS),
        "legend.frameon": False,
        "svg.hashsalt": "coterie",  # the same record gives the same file
        "svg.fonttype": "none",
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure.subplots(rows, columns)
        kind = path.suffix.lower().removeprefix(".")
        svg: dict[str, Any] = {"metadata": {"Date": None}, "transparent": True} if kind == "svg" else {}
        image = io.BytesIO()
        figure.savefig(image, format=kind, dpi=160, **svg)
        content = image.getvalue()
        write_file(path, content.replace(b" <defs>", DARK.encode() + b" <defs>", 1) if svg else content)


def trade_off(record: dict[str, Any], path: Path) -> None:
    """Draw C over T for each kind of plan (fig:trade-off-anayltically) from the record of `coterie plan`."""
    options = record["options"]
    kinds = list(dict.fromkeys(option["plan"] for option in options))
    chosen = record["recommended"]
    with figure_file(path, 6.4, 4.0) as axes:
        reference = record["random_cardinality"]
        axes.axhline(reference, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate("random selection", (1.0, reference), xycoords=("axes fraction", "data"), ha="right",
                      va="bottom", color=GREY)  # fmt: skip
        for kind, marker in zip(kinds, "os^D", strict=False):
            points = [(option["privacy"], option["cardinality"]) for option in options if option["plan"] == kind]
            axes.plot(*zip(*points, strict=True), marker=marker, markersize=5, label=kind)
        label = f"{'recommended' if record['rule_met'] else 'nearest'}: T = {chosen['privacy']}"
        ring = {"s": 160, "facecolors": "none", "edgecolors": "black"}
        axes.scatter(chosen["privacy"], chosen["cardinality"], label=label, **ring)
        axes.set_xlabel("privacy level T")
        if max(option["privacy"] for option in options) > LARGEST_LINEAR_LEVEL:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:.0f}")
        else:
            axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel("users aggregated per round, C")
        axes.set_ylim(bottom=0, top=reference * 1.12 or 1)
        axes.set_title(f"{record['users']} users, at most {record['per_round']} per round", loc="left")
        axes.figure.legend(loc="outside lower center", ncols=4)


def key_metrics(record: dict[str, Any], path: Path) -> None:
    """Draw T, F and C over the rounds for every scheme (fig:key_metrics) from the record of `coterie simulate`."""
    schemes = record["schemes"]
    rounds = range(1, record["rounds"] + 1)
    with figure_file(path, 12.0, 4.0, columns=3) as columns:
        privacy, fairness, cardinality = columns
        exposed = privacy.twinx()
        exposed.spines["right"].set_visible(True)
        for index, scheme in enumerate(schemes):
            colour, curves = COLOURS[index % len(COLOURS)], scheme["curves"]
            style = "-" if index < len(COLOURS) else (0, (5, 2))
            line = {"color": colour, "linestyle": style, "label": scheme["scheme"]}
            privacy.step(rounds, curves["strong"], where="post", **line)
            fairness.plot(rounds, curves["fairness_gap"], **line)
            cardinality.plot(rounds, curves["cardinality"], **line)
            low, high = curves["cardinality_low"], curves["cardinality_high"]
            cardinality.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
            shares = [float("nan") if share is None else share for share in curves["isolated_share"]]
            if any(share > 0 for share in shares):
                exposed.plot(rounds, shares, color=colour, linestyle=(0, (1, 1)), linewidth=2)
        privacy.set_ylim(0, record["per_round"] * 1.05)
        exposed.set_ylim(0, 1.15)
        exposed.set_ylabel("share of users isolated (dotted)")
        fairness.set_ylim(bottom=0)
        cardinality.set_ylim(bottom=0)
        for axes, title in zip(columns, KEY_METRICS.values(), strict=True):
            axes.set_title(title, loc="left")
            axes.set_xlabel("round")
        handles, labels = privacy.get_legend_handles_labels()
        privacy.figure.legend(handles, labels, loc="outside lower center", ncols=min(len(schemes), 9))


def training_curve(rows: Sequence[RoundRow], path: Path) -> None:
    """Draw accuracy and loss over the rounds of a run, where they were measured."""
    with figure_file(path, 8.4, 3.4, columns=2) as (accuracy, loss):
        _line(accuracy, rows, "accuracy", label="test set")
        _line(loss, rows, "loss", label="test set")
        _line(loss, rows, "training_loss", label="users' own data")
        accuracy.set_ylim(0, 1)
        accuracy.yaxis.set_major_formatter("{x:.0%}")
        accuracy.set_title("accuracy", loc="left")
        loss.set_ylim(bottom=0)
        loss.set_title("loss", loc="left")
        accuracy.figure.legend(*loss.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def run_measures(rows: Sequence[RoundRow], path: Path) -> None:
    """Draw T (from the first sum on), F and C over the rounds of a run."""
    learned = list(dropwhile(lambda row: not row.included, rows))
    with figure_file(path, 10.4, 3.2, columns=3) as (privacy, fairness, cardinality):
        _line(privacy, learned, "strong", drawstyle="steps-post")
        _line(fairness, rows, "fairness_gap")
        _line(cardinality, rows, "cardinality")
        for axes, title in zip((privacy, fairness, cardinality), KEY_METRICS.values(), strict=True):
            axes.set_ylim(bottom=0)
            axes.set_title(title, loc="left")


def _line(axes: Any, rows: Sequence[RoundRow], field: str, **style: str) -> None:  # noqa: ANN401 - untyped library
    """Draw one field of a run's rows over the rounds in which it has a value."""
    points = [(row.round, value) for row in rows if (value := getattr(row, field)) is not None]
    axes.plot([round_ for round_, _ in points], [value for _, value in points], **style)
    axes.set_xlabel("round")
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_panels(record: dict[str, Any], path: Path) -> None:
    """Draw panels side by side, each with its lines, and one legend below.

    The record holds a `title` and `panels`, each with a `title`, `across`, `up` and `lines`; a line has a `name`,
    `x`, `y`, and `low` and `high` where there is a band around it; a panel may have a `top`, where its scale ends,
    and a scale that is `logarithmic`. With `columns`, so many panels stand in a row.
    """
    count = len(record["panels"])
    across = record.get("columns", count)
    down = count // across
    width, height = (4.2, 4.0) if down == 1 else (3.2, 2.6)
    with figure_file(path, width * across + 0.6, height * down, columns=across, rows=down) as grid:
        for axes, panel in zip(np.atleast_1d(grid).flat, record["panels"], strict=True):
            for line in panel["lines"]:
                few = len(line["x"]) <= FEW_POINTS
                (drawn,) = axes.plot(
                    line["x"], line["y"], label=line["name"], marker="o" if few else "", markersize=4
                )
                if "low" in line:
                    band = {"color": drawn.get_color(), "alpha": 0.15, "linewidth": 0}
                    axes.fill_between(line["x"], line["low"], line["high"], **band)
            if count > 1:
                axes.set_title(panel["title"], loc="left")
            axes.set_xlabel(panel["across"])
            axes.set_ylabel(panel["up"])
            if panel.get("logarithmic"):
                axes.set_yscale("log")
            else:
                axes.set_ylim(bottom=0, top=panel.get("top"))
        figure = axes.figure
        figure.suptitle(record["title"])
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6))


def deviation(record: dict[str, Any], path: Path) -> None:
    """Draw what a deviating server got of one user's image: a row for each attack, a column for each protocol.

    The record holds `original`, the user's image, and `attempts`, each with its `attack`, `protocol`, `sealed`,
    `outcome`, `psnr` and `image`, if there is one.
    """
    table = DeviationTable(record)
    columns = ["the user's image", *(name.replace(", ", ",\n") for name in table.columns)]
    rows = [
        (
            "\n".join(("a server that", *textwrap.wrap(attack, width=15))),
            [(record["original"], ""), *((each["image"], outcome_note(each)) for each in table.attempts(attack))],
        )
        for attack in table.attacks
    ]
    _image_grid(path, rows, columns)


def reconstruction_histogram(record: dict[str, Any], path: Path) -> None:
    """Draw how many users have which error (fig:histo_error), a panel for each scheme, on a logarithmic scale.

    The record holds `schemes`, each with a `scheme` and the `errors` of its users.
    """
    schemes = record["schemes"]
    edges = np.logspace(-5, 3, 33)
    with figure_file(path, 3.6 * len(schemes) + 0.6, 3.2, columns=len(schemes)) as columns:
        for axes, each, colour in zip(np.atleast_1d(columns), schemes, cycle(COLOURS), strict=False):
            axes.hist(np.clip(each["errors"], edges[0], edges[-1]), edges, color=colour)
            axes.axvline(0.1, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
            axes.set_xscale("log")
            axes.set_title(f"{each['scheme']}: {each['users_found']} of {each['users']} found", loc="left")
            axes.set_xlabel("squared relative error")
            axes.yaxis.get_major_locator().set_params(integer=True)


def reconstruction_grid(record: dict[str, Any], path: Path) -> None:
    """Draw users' images and what the server made of their updates (fig:recon_MSE_PSNR), a row for each scheme.

    The record's `pictures` hold `originals` and, for each of `schemes`, `images` with their `psnr`.
    """
    pictures = record["pictures"]
    names = {"random": "random\nselection"} | {f"T{level}": f"batches\nof {level}" for level in range(2, 100)}
    rows = [("the users'\nimages", [(image, "") for image in pictures["originals"]])]
    for name, each in pictures["schemes"].items():
        notes = [f"{psnr:.0f} dB" for psnr in each["psnr"]]
        rows.append((names.get(name, name), list(zip(each["images"], notes, strict=True))))
    _image_grid(path, rows)


def _image_grid(
    path: Path, rows: Sequence[tuple[str, Sequence[tuple[Any, str]]]], columns: Sequence[str] = ()
) -> None:
    """Draw named rows of images, each with a note below; where there is no image, an empty frame has the note."""
    from matplotlib.patches import Rectangle

    count = len(rows[0][1])
    with figure_file(path, 1.25 * count + 1.25, 1.25 * len(rows) + 0.5) as axes:
        for row, (name, images) in enumerate(rows):
            axes.annotate(name, (-0.1, row + 0.45), ha="right", va="center", fontsize=9)
            for column, (pixels, note) in enumerate(images):
                if pixels is None:
                    axes.add_patch(Rectangle((column, row), 0.9, 0.9, fill=False, edgecolor=f"{GREY}55"))
                    axes.annotate(note, (column + 0.45, row + 0.45), ha="center", va="center", color=GREY)
                    continue
                image = np.array(pixels, dtype=np.uint8)
                image = np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image
                axes.imshow(image, extent=(column, column + 0.9, row + 0.9, row), aspect="equal")
                axes.annotate(note, (column + 0.45, row + 0.91), ha="center", va="top", fontsize=8, color=GREY)
        for column, name in enumerate(columns):
            axes.annotate(name, (column + 0.45, -0.05), ha="center", va="bottom", annotation_clip=False)
        axes.set_xlim(-1.05, count - 0.09)
        axes.set_ylim(len(rows) + 0.1, -0.05)
        axes.set_axis_off()


def write_curves(record: dict[str, Any], folder: Path) -> list[Path]:
    """Write a simulation's curves, a row per scheme and round, to rows.csv and rows.parquet; return the files."""
    columns = ["scheme", "round", *record["schemes"][0]["curves"]]
    rows = [
        (scheme["scheme"], round_, *values)
        for scheme in record["schemes"]
        for round_, values in enumerate(zip(*scheme["curves"].values(), strict=True))
    ]
    written = [folder / "rows.csv"]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([columns, *rows])
    write_file(written[0], text.getvalue().encode())
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        return written
    written.append(folder / "rows.parquet")
    with atomic_write(written[1]) as file:
        columns_of = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
        parquet.write_table(pa.table(columns_of), file)
    return written
