"""docs/running.md tells every field of a spec, with its default, and every file of a run's folder."""

import re
import tomllib
from pathlib import Path

from coterie.lab.experiments.folder import RunFolder
from coterie.lab.experiments.spec import Spec, spec_fields, toml_value

DOCUMENT = (Path(__file__).parents[3] / "docs" / "running.md").read_text()


def test_the_table_of_fields_is_the_spec():
    """All fields in their order, with their defaults as TOML writes them, and the meaning that the code gives."""
    rows = re.findall(r"^\| `([a-z_.]+)` \| `(.*?)` \| (.+) \|$", DOCUMENT, flags=re.MULTILINE)
    assert rows == [(name, toml_value(value), meaning) for name, value, meaning in spec_fields(Spec())]


def test_the_example_is_a_spec():
    """The TOML in the document is taken as it stands."""
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    assert Spec.from_tables(tomllib.loads(example)) != Spec()


def test_the_table_of_files_is_the_folder(tmp_path):
    """Everything that a run's folder can hold is told, and nothing else."""
    _, _, section = DOCUMENT.partition("## The folder\n")
    told = set(re.findall(r"^\| `([\w.]+)/?` \|", section.partition("\n## ")[0], flags=re.MULTILINE))
    folder = RunFolder(tmp_path)
    paths = [folder.record.path, *(value for value in vars(folder).values() if isinstance(value, Path))]
    assert told == {path.name for path in paths} - {tmp_path.name} | {"run.lock"}
