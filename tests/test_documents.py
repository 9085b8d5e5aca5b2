"""README and docs say what is true: their sessions are run, their pictures' records made again."""

import importlib.util
import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from support.cli.command import typed

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(
        path
        for folder in ("docs", "docs/api", "docs/extending", "docs/rooms")
        for path in (ROOT / folder).glob("*.md")
    ),
]


def sessions():
    """Yield every console session of the documents: a command or an example, and the output that stands below."""
    for document in DOCUMENTS:
        for block in re.findall(r"```console\n(.*?)```", document.read_text(), flags=re.DOTALL):
            lines = r"^\$ ((?:coterie|python) .*)\n((?:(?!\$ ).*\n)*)"
            for command, output in re.findall(lines, block, flags=re.MULTILINE):
                yield pytest.param(command, output, id=f"{document.name}: {command}")


@pytest.mark.parametrize(("command", "output"), list(sessions()))
def test_a_session_in_the_documents_prints_what_stands_there(command, output, tmp_path):
    """Running a documented command beside the examples gives the documented output, to the letter."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run = typed(command, tmp_path)
    shown = [line.rstrip() for line in run.stdout.splitlines()]
    assert run.returncode in {0, 1}, run.stderr  # 1: a requirement is not met
    assert shown == [line.rstrip() for line in output.splitlines()]


@pytest.fixture(scope="module")
def pictures():
    """The script that makes the documentation's pictures."""
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_of_the_idea_is_what_exact_arithmetic_gives(pictures):
    """The committed record of the README's picture is made again, bit for bit."""
    assert pictures.idea() == json.loads((ROOT / "docs" / "pictures" / "idea.json").read_text())


def test_the_layers_the_round_and_the_packages_are_those_of_the_code(monkeypatch):
    """Pictures and the pages of packages are what docs/architecture.py makes of contract and docstrings."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import architecture

    files = dict(architecture.written())
    for path, content in files.items():
        assert path.read_text() == content, f"{path.name} is older than the code; run python docs/architecture.py"
    assert set((ROOT / "docs" / "rooms").iterdir()) <= set(files)
    for package in (name for name in architecture.PACKAGES if name != "errors"):
        content = architecture.content(package)
        assert re.search(r"^- \*\*In:\*\* .*^- \*\*Out:\*\* ", content, flags=re.MULTILINE | re.DOTALL), package
        assert "\nImports " in content


def test_every_page_that_is_photographed_has_its_picture(monkeypatch):
    """docs/screenshots.py has taken each of its pages, and no picture weighs more than a page of text."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import screenshots

    for name in screenshots.PAGES:
        picture = (screenshots.PICTURES / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 300_000


def test_the_table_of_measures_comes_from_its_record(pictures):
    """The documentation's comparison with the published measures is what the committed record says."""
    record = json.loads((ROOT / "docs" / "pictures" / "measures.json").read_text())
    assert pictures.measures_table(record) == (ROOT / "docs" / "pictures" / "measures.md").read_text()


def test_the_documents_numbers_are_those_of_the_benchmarks_results(monkeypatch):
    """The tables of speed are those that the committed results give."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import summary

    for document, table in summary.tables().items():
        assert f"<!-- benchmarks -->\n{table}<!-- end -->" in (ROOT / document).read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(document):
    """Every relative link and picture of a document exists."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_is_there(document):
    """A path in code font, from the checkout or from the package, leads to a file."""
    for path in re.findall(r"`((?:[\w-]+/)+\w+\.py)`", document.read_text()):
        assert (ROOT / path).is_file() or (ROOT / "src" / "coterie" / path).is_file(), path


def test_every_test_that_the_threat_model_names_is_there():
    """Every row about misbehaviour has its test, in the files named above the tables; so has every other claim."""
    document = (ROOT / "docs" / "threat-model.md").read_text()
    where = {}
    for path in sorted((ROOT / "tests" / "secagg").glob("test_*.py")):
        for name in re.findall(r"^def (test_\w+)", path.read_text(), flags=re.MULTILINE):
            where.setdefault(name, []).append(path.name)
    _, _, section = document.partition("\n## Misbehaviour and what happens\n")
    tables, _, _ = section.partition("\n## ")
    rows = re.findall(r"^\| .* \| `(?:(test_\w+\.py)::)?(test_\w+)` \|$", tables, flags=re.MULTILINE)
    headings = len(re.findall(r"^\| misbehaviour ", tables, flags=re.MULTILINE))
    assert len(rows) == len(re.findall(r"^\| ", tables, flags=re.MULTILINE)) - 2 * headings
    for file, name in rows:
        wanted = file or "test_misbehaviour_"
        assert any(found.startswith(wanted) for found in where.get(name, [])), f"{wanted}: {name}"
    assert len({name for _, name in rows}) == len(rows)
    for name in re.findall(r"`(?:test_\w+\.py::)?(test_\w+)`", document):
        assert name in where, name


def test_the_page_of_the_reproduction_is_what_the_committed_records_say():
    """docs/reproduction.md, and the README's part of it, are written from the records again, to the letter."""
    spec = importlib.util.spec_from_file_location("reproduction_page", ROOT / "docs" / "reproduction.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclass looks itself up
    spec.loader.exec_module(module)
    assert module.page() == module.PAGE.read_text(encoding="utf-8")
    readme = module.README.read_text(encoding="utf-8")
    assert "claims held**" in module.README_PART.search(readme)[0]
    assert module.readme(readme) == readme


def test_the_page_of_the_attacks_is_what_the_demonstrations_record_says():
    """docs/attacks.md is written from the committed record of `coterie attack --demo` again, to the letter."""
    spec = importlib.util.spec_from_file_location("attacks_page", ROOT / "docs" / "attacks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    record = json.loads(module.RECORD.read_text(encoding="utf-8"))
    assert module.page(record) == module.PAGE.read_text(encoding="utf-8")
    facts = module.deviation_facts(record["deviation"])
    attempts = record["deviation"]["attempts"]
    recovered = [attempt["error"] for attempt in attempts if attempt["outcome"] == "recovered"]
    noise = [abs(attempt["correlation"]) for attempt in attempts if attempt["outcome"] == "noise"]
    assert max(recovered) <= float(facts["worst_recovered"])  # of which the page says "at most"
    assert max(noise) <= float(facts["largest_correlation"])


def test_torture_names_tests_that_are_there():
    """A kind of fault whose file or test was renamed would try nothing."""
    kinds = runpy.run_path(str(ROOT / "tests" / "torture" / "torture.py"))["KINDS"]
    for kind in kinds:
        names = re.findall(r"^def (test_\w+)", (ROOT / kind.path).read_text(), re.MULTILINE)
        assert any(kind.which in name for name in names), kind
