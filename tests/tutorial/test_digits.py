"""The tutorial until its readers bring their own data: two runs, their audits, a comparison and a plan."""

from support.tutorial import follow, halves


def test_the_tutorial_can_be_followed_until_own_data(tmp_path):
    """Its commands, typed one after the other in one folder, all succeed, and their pages are there."""
    assert follow(halves()[0], tmp_path) >= 6
    for page in ("first/report.html", "compared.html"):
        assert (tmp_path / page).is_file()
