"""Audits by brute force over the rationals, from the definitions; nothing of coterie.audit is used here."""

from collections import Counter
from fractions import Fraction
from itertools import combinations


def rank(rows):
    """The rank of a matrix of whole numbers, by elimination in them: entries stay minors, and divisions exact."""
    left, found, before = [list(row) for row in rows], 0, 1
    for column in range(len(left[0]) if left else 0):
        pivot = next((index for index in range(found, len(left)) if left[index][column]), None)
        if pivot is None:
            continue
        left[found], left[pivot] = left[pivot], left[found]
        own = left[found]
        top = own[column]
        for index in range(found + 1, len(left)):
            factor = left[index][column]
            left[index] = [(a * top - factor * b) // before for a, b in zip(left[index], own, strict=True)]
        found, before = found + 1, top
    return found


def without(rows, columns):
    """The matrix without some columns."""
    return [[entry for column, entry in enumerate(row) if column not in columns] for row in rows]


def weak_level(rows):
    """The fewest users in a non-zero combination: the smallest set whose removal lowers the rank; N if none."""
    users, full = len(rows[0]), rank(rows)
    for size in range(1, users + 1):
        if any(rank(without(rows, chosen)) < full for chosen in combinations(range(users), size)):
            return size
    return users


def isolated_users(rows):
    """The users whose unit vector is a combination of rows: removing the column lowers the rank."""
    full = rank(rows)
    return [user for user in range(len(rows[0])) if rank(without(rows, {user})) < full]


def isolated_since(rows):
    """Each isolated user's first row after which it is isolated."""
    since = {}
    for count in range(1, len(rows) + 1):
        for user in isolated_users(rows[:count]):
            since.setdefault(user, count - 1)
    return since


def strong_level(rows):
    """The size of the smallest class of equal non-zero columns; N if all are zero."""
    columns = Counter(column for column in zip(*rows, strict=True) if any(column))
    return min(columns.values(), default=len(rows[0]))


def combined(combination, rows):
    """What a combination of rows (the log's learned sets, in order) gives at every user."""
    weights = [Fraction(numerator, combination.denominator) for numerator in combination.numerators]
    return [
        sum(
            (weight * rows[index][user] for index, weight in zip(combination.sets, weights, strict=True)),
            Fraction(0),
        )
        for user in range(len(rows[0]))
    ]


def isolates(proof, user, rows):
    """Whether a proof of either kind shows that a user is isolated by the rows (the log's learned sets)."""
    if hasattr(proof, "numerators"):
        return combined(proof, rows) == [int(other == user) for other in range(len(rows[0]))]
    known = rows[: proof.sets]
    columns = Counter(zip(*known, strict=True))
    own = tuple(row[user] for row in known)
    different = [column for column in columns if any(column)]
    return any(own) and columns[own] == 1 and rank(list(zip(*different, strict=True))) == len(different)
