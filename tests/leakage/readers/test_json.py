"""Logs as JSON lines: nothing is lost, and what is wrong is named with its line."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import LogBuilder, ParticipationLog, UsageError
from coterie.leakage.readers import write_log
from support.logs import only_log

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=5)
HEAD = '{"format":"coterie log","version":1,"first":3,"rounds":4,"users":["ana","bob","cas"]}\n'


@st.composite
def logs(draw):
    """Any log: users who never took part, rounds without a result at both ends, several sets, odd names."""
    users = draw(st.integers(0, 5))
    names = draw(st.none() | st.lists(NAMES | st.sampled_from(['"', "a\nb", "7", "\u2028"]),
                                      min_size=users, max_size=users, unique=True))  # fmt: skip
    builder = LogBuilder(users, names, first=draw(st.integers(0, 9)))
    sets = st.sets(st.integers(0, max(0, users - 1)), min_size=1)
    for round_ in draw(st.lists(st.lists(sets, max_size=3 if users else 0), max_size=5)):
        builder.append(*(sorted(each) for each in round_))
    return builder.build()


@settings(deadline=None)
@given(logs())
def test_the_whole_log_comes_back(tmp_path_factory, log):
    """Names, order, rounds without a result, users who never took part: everything is as it was."""
    path = tmp_path_factory.getbasetemp() / "log.jsonl"
    write_log(log, path)
    again = only_log(path)
    assert again == log
    assert again.first == log.first


def test_the_form_is_an_object_per_learned_set(tmp_path):
    """The first line tells users and rounds; then a set is a line, numbered where a round has several."""
    builder = LogBuilder(3, ["ana", "bob", "cas"], first=3)
    builder.append([0, 1], [2])
    builder.append()
    builder.append([0, 1, 2])
    write_log(builder.build(), tmp_path / "log.jsonl")
    assert [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [
        {"format": "coterie log", "version": 1, "first": 3, "rounds": 3, "users": ["ana", "bob", "cas"]},
        {"round": 3, "set": 0, "users": ["ana", "bob"]},
        {"round": 3, "set": 1, "users": ["cas"]},
        {"round": 5, "set": 0, "users": ["ana", "bob", "cas"]},
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"round":5,"users":["bob"]}\n{"round":3,"users":["bob","alice"]}\n',
        '\n{"users":["alice","bob"],"round":3}\n\n{"round":5,"set":7,"users":["bob"]}',
    ],
)
def test_a_file_without_the_first_line_means_what_its_rows_would(tmp_path, text):
    """Lines in any order, with blank ones between them, give the log of the same rows as CSV."""
    (tmp_path / "log.jsonl").write_text(text)
    (tmp_path / "log.csv").write_text("round,user\n3,alice\n3,bob\n5,bob\n")
    for options in ({}, {"users": 4, "rounds": 9}):
        assert only_log(tmp_path / "log.jsonl", **options) == only_log(tmp_path / "log.csv", **options)


def test_lines_of_one_round_are_sets_of_their_own(tmp_path):
    """Without numbers, sets of a round keep the order of their lines; user numbers are numbers."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"round":0,"users":[1,2]}\n{"round":0,"users":[0]}\n')
    assert only_log(path, users=3) == ParticipationLog.from_dense([[0, 1, 1], [1, 0, 0]], rounds=[0, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ('{"round":1,"users":["a"]}\n{"round":1,"us', "line 2: this is not JSON, or is cut off"),
        ('{"round":-1,"users":["a"]}\n', "line 1: the round '-1' is not an integer of 0 or more"),
        ('{"round":1,"users":[]}\n', "line 1: a learned set has no users"),
        ('{"round":1,"set":true,"users":["a"]}\n', "line 1: the set True is not an integer from 0 to 999"),
        ('{"round":1,"set":10000000000000000000,"users":["a"]}\n', "line 1: the set 10000000000000000000 is not"),
        ('{"round":1,"users":[""]}\n', "line 1: a user has no name"),
        (
            '{"round":1,"set":0,"users":["a"]}\n{"round":1,"set":0,"users":["b"]}\n',
            "line 2: round 1 has its set 0",
        ),
        ('{"format":"other","version":1}\n', "has the format 'other'"),
        (HEAD.replace(":1,", ":2,", 1), "version 2; this Coterie reads"),
        (HEAD.replace('"first"', '"begin"'), "line 1"),
        (HEAD.replace("cas", "bob"), "two users have the same name"),
        (HEAD.replace("cas", ""), "line 1: a user has no name"),
        (HEAD.replace('"rounds":4', '"rounds":4000000000'), "line 1"),
        (HEAD + '{"round":7,"users":["ana"]}\n', "line 2: round 7 is none of those that line 1 names"),
        (HEAD + '{"round":3,"users":["dan"]}\n', "line 2: the user 'dan' is none of those"),
        (HEAD + '{"round":3,"users":[0]}\n', "line 2: the user 0 is none of those"),
        (HEAD + '{"round":3,"users":["ana","ana"]}\n', "line 2: a user stands twice"),
        (HEAD.replace('["ana","bob","cas"]', "3") + '{"round":3,"users":[3]}\n', "line 2: user 3 is not one of"),
        (
            HEAD.replace('["ana","bob","cas"]', "3") + '{"round":3,"users":["ana"]}\n',
            "line 2: .* must be integers",
        ),
        ("[" * 100_000, "this is not JSON, or is cut off"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, message):
    """Bad lines are refused: cut off, of a wrong type, said twice, or in contradiction to the first line."""
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        only_log(path)


def test_a_file_that_tells_its_users_needs_no_options(tmp_path):
    """Options that say otherwise are refused; the same numbers are fine."""
    path = tmp_path / "log.jsonl"
    path.write_text(HEAD)
    assert only_log(path, users=3, rounds=4).names == ("ana", "bob", "cas")
    for options in ({"users": 4}, {"rounds": 5}):
        with pytest.raises(UsageError, match=r"itself that there are . (users|rounds); leave out the"):
            only_log(path, **options)


def test_bytes_that_are_not_text_are_refused(tmp_path):
    """A byte that is not UTF-8 is named with its line."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"round":1,"users":["a"]}\n{"round":1,"users":["\xff"]}\n')
    with pytest.raises(UsageError, match="line 2"):
        only_log(path)
