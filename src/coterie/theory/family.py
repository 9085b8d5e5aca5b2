"""Family sizes R: how many different cohorts a selection scheme can choose from (tbl:codebook_size)."""

from math import comb

from coterie.values.checks import check_count, check_divides, check_parameters


def family_size(users: int, per_round: int, privacy: int) -> int:
    """Return R = C(N/T, K/T), the number of cohorts made of whole batches; T divides N and K.

    T = 1 is random selection (weighted or not), T = K is user partition.

    >>> [family_size(120, 12, privacy) for privacy in (6, 4, 3, 12)]  # the paper prints 91389: a rounding
    [190, 4060, 91390, 10]
    >>> f"{family_size(120, 12, privacy=1):.1e}"
    '1.1e+16'
    """
    return comb(*check_divides(users, per_round, privacy))


def bernoulli_family_size(users: int) -> int:
    """Return 2^N - 1, the number of non-empty cohorts of i.i.d. selection (app:random-selection).

    >>> bernoulli_family_size(10)
    1023
    """
    return (1 << check_count(users, "the number of users N")) - 1


def family_size_bound(users: int, per_round: int, privacy: int) -> int:
    """Return the most cohorts of K users that any scheme of strong privacy T can have (app:converse).

        R ≤ C(D, E),  D = ⌊N/T⌋,  E = min(⌊K/T⌋, ⌊(N-K)/T⌋, ⌊D/2⌋)

    Strong privacy T makes classes of at least T users that take part together, at most D of them. A cohort
    is a union of at most K/T classes, and the users it leaves out are a union of at most (N-K)/T. Cohorts
    of equal size never contain one another, so by the LYM inequality there are at most C(D, E) of them. For
    K ≤ N/2 this is the paper's C(⌊N/T⌋, ⌊K/T⌋). The paper stops there; the users left out settle K > N/2:
    batch partitioning is the best for every K if T divides N and K.

    >>> family_size_bound(120, 12, 6), family_size_bound(120, 108, 6), family_size_bound(125, 17, 6)
    (190, 190, 190)
    """
    check_parameters(users, per_round, privacy)
    most = users // privacy
    return comb(most, min(per_round // privacy, (users - per_round) // privacy, most // 2))
