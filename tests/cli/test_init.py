"""`coterie init` writes a spec to begin from, and nothing over anything."""

from coterie.lab.experiments.spec import Spec
from support.cli.command import coterie


def test_the_written_spec_is_the_default_one_and_is_not_overwritten(tmp_path):
    """The file reads as the default spec; a second call refuses it, and leaves it as it is."""
    file = tmp_path / "mine.toml"
    first = coterie("init", file)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == f"Wrote {file}; change it, then: coterie run {file}\n"
    assert Spec.read(file) == Spec()
    file.write_text("seed = 5\n")
    second = coterie("init", file)
    assert second.returncode == 2
    assert second.stderr == f"coterie: {file} exists already; give another name, or remove it\n"
    assert Spec.read(file).seed == 5
