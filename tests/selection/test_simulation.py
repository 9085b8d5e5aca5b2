"""Simulation gives the paper's measures, the same whatever computes them."""

from dataclasses import replace

import numpy as np
import pytest

from coterie import UsageError
from coterie.leakage import measure
from coterie.selection import (
    BatchSelector,
    IndependentDropout,
    RandomSelector,
    RedrawnDropout,
    WeightedRandomSelector,
    consecutive,
    draw_dropout,
    simulation,
    uniform,
    user_partition,
)
from coterie.selection.simulation import (
    MEASURES,
    Scheme,
    Simulation,
    Summary,
    run_trial,
    run_trials,
    schemes_of,
    trial_log,
)
from coterie.selection.trade_off import KnownDropout
from support.selectors import OwnSelector

PAPER = (0.1, 0.2, 0.3, 0.4, 0.5)


def batches(privacy, users=120, per_round=12, **options):
    return BatchSelector(consecutive(users, privacy), per_round, **options)


def paper(availability, rounds=200, **options):
    """The paper's six schemes at N = 120, K = 12."""
    schemes = (
        Scheme("random", RandomSelector(12)),
        Scheme("weighted", WeightedRandomSelector(12)),
        Scheme("partition", user_partition(120, 12)),
        *(Scheme(f"T{privacy}", batches(privacy)) for privacy in (6, 4, 3)),
    )
    return Simulation(120, 12, rounds, schemes, availability, **options)


def summaries(simulation_, trials, processes=1):
    """Run and sum up, by scheme name."""
    found = [Summary(simulation_.rounds) for _ in simulation_.schemes]
    for results in run_trials(simulation_, trials, processes):
        for summary, trial in zip(found, results, strict=True):
            summary.add(trial)
    return {scheme.name: summary for scheme, summary in zip(simulation_.schemes, found, strict=True)}


def scheme_summaries(simulation_, trials):
    """Run and sum up only the schemes that are given a number of trials, each in its place of the simulation."""
    found = {}
    for index, scheme in enumerate(simulation_.schemes):
        if scheme.name in trials:
            found[scheme.name] = Summary(simulation_.rounds)
            for trial in range(trials[scheme.name]):
                found[scheme.name].add(run_trial(simulation_, index, trial))
    return found


@pytest.fixture(scope="module")
def over_populations():
    """The six schemes over 200 rounds, averaged over draws of the users' dropout.

    Schemes without batches are costly, since who is isolated is worked out in every trial, and differ little from
    draw to draw: after 25 the standard error of their F is an eighth of what is allowed, that of `partition` after
    100 a third. Their C does not differ at all.
    """
    trials = {"random": 25, "weighted": 25, "partition": 100, "T6": 100, "T4": 100, "T3": 100}
    return scheme_summaries(paper(RedrawnDropout(PAPER, 120), seed=1), trials)


def test_the_fairness_gaps_are_the_published_ones(over_populations):
    """F over completed rounds comes out within 0.02 of the paper's stored data for all six schemes."""
    published = {"random": 0.143, "weighted": 0.010, "partition": 0.272, "T6": 0.118, "T4": 0.029, "T3": 0.016}
    measured = {name: summary.mean("fairness_gap_completed")[-1] for name, summary in over_populations.items()}
    assert measured == pytest.approx(published, abs=0.02)


def test_the_cardinalities_are_the_exact_averages(over_populations):
    """C averaged over populations is the known exact value within the simulation's own interval."""
    exact = {"random": 12, "weighted": 12, "partition": 1.56, "T6": 8.40, "T4": 11.83, "T3": 12.00}
    for name, summary in over_populations.items():
        low, high = (bound[-1] for bound in summary.interval("cardinality"))
        width = max(high - low, 0.01)
        assert low - width < exact[name] < high + width, name


def test_the_levels_are_those_promised_and_random_selection_exposes_everyone(over_populations):
    """Batches keep T to the end in every trial; random selection isolates everyone at about round 120."""
    ends = {name: summary.lowest_strong[-1] for name, summary in over_populations.items()}
    assert ends == {"random": 1, "weighted": 1, "partition": 12, "T6": 6, "T4": 4, "T3": 3}
    for name in ("random", "weighted"):
        share = over_populations[name].mean("isolated_share")
        assert share[107] < 0.01
        assert share[125] > 0.99
    assert over_populations["T3"].mean("isolated_share").max() == 0


def test_one_population_has_the_poisson_binomial_cardinality():
    """For one draw of p_i, C lies in the simulation's interval around the exact value."""
    dropout = draw_dropout(PAPER, 120, np.random.default_rng(4))
    levels = {"partition": 12, "T6": 6, "T4": 4, "T3": 3}
    found = scheme_summaries(paper(IndependentDropout(dropout), seed=4), dict.fromkeys(levels, 60))
    for name, privacy in levels.items():
        exact = KnownDropout(dropout, 0).trade(consecutive(120, privacy), 12).cardinality
        low, high = (bound[-1] for bound in found[name].interval("cardinality"))
        margin = max(high - low, 0.02)
        assert low - margin < exact < high + margin, name


def test_uniform_selection_leaves_the_fairness_gap_open():
    """With unequal dropout λ = 0 keeps a gap that fairness-aware selection closes (its second component)."""
    dropout = draw_dropout(PAPER, 120, np.random.default_rng(0))
    schemes = (Scheme("aware", batches(3)), Scheme("uniform", batches(3, order=uniform)))
    found = summaries(Simulation(120, 12, 1500, schemes, IndependentDropout(dropout)), trials=3)
    assert found["aware"].mean("fairness_gap")[-1] < 0.01
    assert found["uniform"].mean("fairness_gap")[-1] > 0.1


def test_the_number_of_processes_changes_nothing():
    """One process or two: the same numbers, bit for bit, trial by trial."""
    simulation_ = paper(RedrawnDropout(PAPER, 120), rounds=20, seed=9)
    alone, together = (summaries(simulation_, trials=5, processes=count) for count in (1, 2))
    for name, summary in alone.items():
        for name_ in MEASURES:
            np.testing.assert_array_equal(summary.mean(name_), together[name].mean(name_))


def test_schemes_meet_the_same_world():
    """Adding a scheme changes nothing for the others: a trial depends on seed, trial and its own place."""
    base = paper(RedrawnDropout(PAPER, 120), rounds=15, seed=3)
    fewer = Simulation(120, 12, 15, base.schemes[:2], base.availability, seed=3)
    for scheme in range(2):
        np.testing.assert_array_equal(
            run_trial(base, scheme, 4).cardinality, run_trial(fewer, scheme, 4).cardinality
        )


def test_losing_users_mid_round_splits_batches_unless_they_are_sealed():
    """Unsealed, the survivors' sum comes out and T falls to 1; sealed, the batch is left out and T holds."""
    schemes = (Scheme("sealed", batches(4)), Scheme("unsealed", batches(4), sealed=False))
    world = Simulation(120, 12, 150, schemes, IndependentDropout(np.full(120, 0.1)), lost=0.05)
    found = summaries(world, trials=4)
    assert found["sealed"].lowest_strong[-1] == 4
    assert found["unsealed"].lowest_strong[-1] == 1
    assert found["sealed"].mean("cardinality")[-1] < found["unsealed"].mean("cardinality")[-1]
    assert found["sealed"].mean("cardinality")[-1] == pytest.approx(12 * 0.95**4, abs=0.3)
    assert found["unsealed"].mean("cardinality")[-1] == pytest.approx(12 * 0.95, abs=0.1)


def test_comings_and_goings_keep_the_level():
    """Users join and leave during the run: T holds, newcomers take part, leavers' batches retire."""
    availability = IndependentDropout(np.full(200, 0.05))
    schemes = (Scheme("T4", batches(4)), Scheme("random", RandomSelector(12)))
    moving = Simulation(120, 12, 400, schemes, availability, leaving=0.001, joining=0.15)
    still = Simulation(120, 12, 400, schemes, availability, leaving=0.01)
    found, emptied = summaries(moving, trials=3), summaries(still, trials=2)
    assert found["T4"].lowest_strong[-1] >= 4
    assert found["T4"].mean("skipped")[-1] < 0.05
    assert emptied["T4"].lowest_strong[-1] >= 4
    assert emptied["T4"].mean("skipped")[-1] > 0.3


def test_users_who_never_come_are_not_there():
    """A model of more users than take part is one of the first of them: nobody else is chosen, or counted in F."""
    availability = IndependentDropout(np.full(20, 0.1))
    schemes = (Scheme("random", RandomSelector(6)), Scheme("T3", batches(3, 12, 6)))
    world = Simulation(12, 6, 100, schemes, availability)
    assert trial_log(world, 0).participants.tolist() == list(range(12))
    found = summaries(world, trials=1)
    assert found["random"].mean("isolated_share")[-1] == 1
    assert found["T3"].mean("fairness_gap")[-1] < 0.05


def test_the_isolated_share_is_one_of_the_users_who_came():
    """Where random selection has isolated everybody who ever came, the share is 1, whoever could still come."""
    result = simulation.simulate(
        users=12, per_round=6, dropout=0.1, schemes=["random"], rounds=400, trials=1, joining=0.02
    )
    assert len(trial_log(result.simulation, 0).participants) < result.simulation.availability.users
    assert result.columns["isolated_share"].tolist() == [1.0]


def test_users_join_a_plan_that_has_names():
    """Names mean nothing in a simulation: with and without them the same rounds come out."""
    plan = consecutive(12, 3)
    named = replace(plan, names=tuple(f"user {user}" for user in range(12)))
    plain, other = (
        simulation.simulate(
            users=12, per_round=6, schemes=[], plan=each, dropout=0.1, rounds=40, trials=1, joining=0.5
        )
        for each in (plan, named)
    )
    assert plain.record() == other.record()


def test_a_selector_of_batches_need_not_be_ours():
    """One that only has a plan meets losses, comings and goings as ours does: equal logs, sealed or not."""
    availability = IndependentDropout(np.full(60, 0.1))
    own, ours = (
        Simulation(
            30,
            6,
            60,
            schemes_of([("T3", selector)], None, 30, 6, 0.05),
            availability,
            lost=0.05,
            leaving=0.005,
            joining=0.3,
        )
        for selector in (OwnSelector(batches(3, 30, 6)), batches(3, 30, 6))
    )
    assert [scheme.sealed for scheme in own.schemes] == [True, False]
    for scheme in range(2):
        logs = [trial_log(each, scheme, 0) for each in (own, ours)]
        assert logs[0] == logs[1]
        assert sum(1 for _ in logs[0].sets()) > 20


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """The 95 % interval of a mean covers the true mean in about 95 of 100 repetitions."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        summary = Summary(1)
        for value in rng.normal(5.0, 2.0, 8):
            summary.add(simulation.Trial(*np.full((len(MEASURES), 1), value)))
        low, high = summary.interval("cardinality")
        hits += low[0] < 5.0 < high[0]
    assert 0.92 < hits / 400 < 0.98


def test_large_populations_say_that_isolation_was_not_measured():
    """Beyond the limit the isolated share is NaN once the level is 1, and 0 while batches hold."""
    schemes = (Scheme("random", RandomSelector(60)), Scheme("T6", batches(6, 600, 60)))
    found = summaries(Simulation(600, 60, 8, schemes, IndependentDropout(np.full(600, 0.1))), trials=1)
    assert np.isnan(found["random"].mean("isolated_share")[-1])
    assert found["T6"].mean("isolated_share")[-1] == 0
    world = Simulation(600, 60, 8, schemes, IndependentDropout(np.full(600, 0.1)))
    result = simulation.SimulationResult(world, "dropout 0.1", 1, tuple(found.values()))
    assert result.record()["schemes"][0]["isolated_share"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"lost": 1.5}, "lost mid-round is 1.5"),
        ({"leaving": -1.0}, "leave is -1.0"),
        ({"joining": float("nan")}, "nan"),
        ({"schemes": ()}, "no scheme"),
        ({"users": 200}, "fewer than the 200 users"),
        ({"schemes": (Scheme("a", RandomSelector(1)), Scheme("a", RandomSelector(2)))}, "given twice"),
    ],
)
def test_impossible_simulations_are_refused(changes, message):
    """Bad parameters are a UsageError with the value."""
    options = {
        "users": 120,
        "per_round": 12,
        "rounds": 10,
        "schemes": (Scheme("random", RandomSelector(12)),),
        "availability": IndependentDropout(np.full(120, 0.1)),
    }
    with pytest.raises(UsageError, match=message):
        Simulation(**{**options, **changes})


@pytest.mark.parametrize(("trials", "processes"), [(0, 1), (1, 0)])
def test_no_trials_or_processes_are_refused(trials, processes):
    """At least one trial and one process."""
    with pytest.raises(UsageError, match="is 0"):
        next(run_trials(paper(RedrawnDropout(PAPER, 120)), trials, processes))


def test_the_log_of_a_trial_is_the_one_that_was_measured():
    """Measuring a trial's log gives the trial's own measures."""
    schemes = (Scheme("T2", BatchSelector(consecutive(12, 2), 6)), Scheme("random", RandomSelector(6)))
    simulation = Simulation(12, 6, 30, schemes, IndependentDropout(np.full(12, 0.3)), seed=4, lost=0.05)
    for index in range(2):
        log, trial = trial_log(simulation, index, 3), run_trial(simulation, index, 3)
        assert measure(log).strong.tolist() == trial.strong.tolist()
        assert np.allclose(measure(log).cardinality, trial.cardinality)
