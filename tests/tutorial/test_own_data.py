"""The tutorial from where its readers bring their own data: a script, a run on its files, an audit of a log."""

from support.tutorial import follow, halves


def test_the_tutorial_can_be_followed_with_own_data(tmp_path):
    """Its commands, typed one after the other beside its script in a new folder, all succeed."""
    assert follow(halves()[1], tmp_path) >= 3
    assert (tmp_path / "ours/report.html").is_file()
