"""Clients train side by side and no result depends on how many do; numerics are set while a GPU computes."""

import os
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from coterie import UsageError
from coterie.lab.training import MNIST_SMALL, UserData, evaluate, iid, load, make_model
from coterie.lab.training.models import flatten
from coterie.lab.training.settings import LocalTraining
from coterie.lab.training.stacked_trainer import make_trainer
from coterie.lab.training.trainer import Numerics, SeparateTrainer, Workers, available_cores, one_core
from support.training.clients import OwnModel, small_network, user_data_of


@pytest.fixture(scope="module")
def digits():
    """The shipped images, 120 for each of 100 users."""
    dataset = load(MNIST_SMALL)
    return UserData.of_dataset(dataset, iid(len(dataset.train), 100, np.random.default_rng(0))).to("cpu")


def perceptron():
    """A model without convolutions and large enough for several threads: its clients are stacked."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Dropout(0.2), nn.Linear(200, 10))


MODELS = {
    "small-cnn": lambda: make_model("small-cnn", 10, 0),
    "mnist-cnn": lambda: make_model("mnist-cnn", 10, 0),
    "perceptron": perceptron,
}


@pytest.mark.parametrize("name", MODELS)
def test_workers_and_threads_decide_nothing(digits, name):
    """1, 2 and 4 workers, whatever torch's own threads: updates, mean, losses and test are the same to the bit."""
    local = LocalTraining(minibatch=20, learning_rate=0.1, shuffled=True, momentum=0.5)
    model, users = MODELS[name](), [3, 1, 4, 15, 92, 65]
    parameters, results = flatten(model), []
    before = torch.get_num_threads()
    for workers, threads in [(1, 1), (2, 1), (4, 4), (1, 4)]:
        torch.set_num_threads(threads)
        try:
            trainer = make_trainer(model, digits, local, cohort=len(users), seed=2, workers=workers)
            updates, mean = trainer.updates(parameters, users, 1), trainer.mean(parameters, users, 1)
            tested = evaluate(model, parameters + mean.vector, digits, workers=workers)
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        assert trainer.workers == workers
        results.append((updates.vectors, updates.losses.tolist(), mean.vector, mean.losses.tolist(), tested))
    for vectors, losses, vector, of_mean, tested in results[1:]:
        assert torch.equal(vectors, results[0][0])
        assert torch.equal(vector, results[0][2])
        assert (losses, of_mean, tested) == (results[0][1], results[0][3], results[0][4])


@pytest.mark.parametrize("make", [small_network, OwnModel])
def test_clients_of_any_model_train_side_by_side(make):
    """Dropout, tied and frozen parameters, modules that go through vmap: four workers give what one gives."""
    user_data, model = user_data_of([9, 4, 6, 3, 8]), make()
    local = LocalTraining(minibatch=4, epochs=2, shuffled=True)
    one, four = (make_trainer(model, user_data, local, cohort=5, workers=workers) for workers in (1, 4))
    expected = one.updates(flatten(model), range(5), 0)
    for _ in range(5):
        assert torch.equal(four.updates(flatten(model), range(5), 0).vectors, expected.vectors)


def test_a_layout_in_memory_is_not_seen_from_outside():
    """A model of common layers is laid out anew for a CPU: updates are those of torch's usual layout."""

    class Same(nn.Sequential):
        """Not a plain Sequential, and so left as it is."""

    user_data, model = user_data_of([9, 4]), small_network()
    local = LocalTraining(minibatch=4, epochs=2)
    ours = SeparateTrainer(model, user_data, local).updates(flatten(model), [0, 1], 0)
    usual = SeparateTrainer(Same(*small_network()), user_data, local).updates(flatten(model), [0, 1], 0)
    assert float((ours.vectors - usual.vectors).norm()) <= 1e-5 * float(usual.vectors.norm())
    assert evaluate(model, flatten(model), user_data).loss == pytest.approx(
        evaluate(Same(*small_network()), flatten(model), user_data).loss, rel=1e-5
    )


def test_a_model_that_draws_by_itself_is_refused():
    """Clients that train side by side share torch's generator; a model that draws from it is refused."""

    class Noisy(nn.Conv2d):
        def forward(self, images):
            return functional.dropout(super().forward(images)).mean(dim=(2, 3))

    model, state = Noisy(1, 3, 3), torch.random.get_rng_state()
    with pytest.raises(UsageError, match=r"random numbers of its own.*use torch\.nn\.Dropout"):
        SeparateTrainer(model, user_data_of([4, 4]), LocalTraining())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_results_come_in_order_and_at_most_a_few_ahead():
    """However long each takes, results have their items' order; what nobody has asked for is hardly begun."""
    begun, gate = [], threading.Event()

    def work(_, item, __):
        begun.append(item)
        if item == 0:
            gate.wait(30)
        return item

    results = Workers([None, None]).map(work, range(50))
    threading.Timer(0.05, gate.set).start()
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert max(begun) < 10
    assert list(results) == list(range(3, 50))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_no_thread_outlives_an_error(error):
    """An error in one piece of work, or in the caller, stops the others; replicas can be used again."""
    threads = threading.active_count()
    workers = Workers(["a", "b", "c"])

    def endless(_, item, stop):
        while item and not stop():
            pass
        return item

    results = workers.map(endless, range(9))
    assert next(results) == 0
    with pytest.raises(error):
        results.throw(error())
    assert threading.active_count() == threads

    def failing(_, item, stop):
        if item == 0:
            raise error
        return endless(_, item, stop)

    with pytest.raises(error):
        list(workers.map(failing, range(9)))
    assert threading.active_count() == threads
    assert list(workers.map(lambda replica, item, stop: item, range(9))) == list(range(9))


def test_torchs_number_of_threads_is_put_back():
    """One core inside, for new threads too; before and after what the caller had. A GPU is not affected."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_core(torch.device("cpu")):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        with one_core(torch.device("meta")):
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, 8),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "250000 100000"}, 3),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "50000 100000"}, 1),
        ({"proc/self/cgroup": "0::/outside/it", "sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/docker/x",
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "400000",
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            8,
        ),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "nonsense 0"}, 8),
    ],
)
def test_a_containers_quota_bounds_the_cores(tmp_path, monkeypatch, files, cores):
    """Of eight cores: the quota of either kind of control group, rounded up, of any group around the process."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert available_cores(tmp_path) == cores


def switches():
    """What torch is set to."""
    return (
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cuda"),
    )


@pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'")
@pytest.mark.parametrize(
    ("numerics", "inside"),
    [
        (Numerics(), (True, True, False, False, False)),
        (Numerics(tf32=False, deterministic=True), (False, False, True, True, False)),
    ],
)
def test_switches_are_set_inside_and_put_back(numerics, inside, monkeypatch):
    """Within, torch is set as asked; afterwards as before, an error in between or not."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = switches()
    with numerics.applied():
        assert switches() == inside
    assert switches() == before
    with pytest.raises(ZeroDivisionError), numerics.applied():
        raise ZeroDivisionError
    assert switches() == before


def test_a_trainer_on_a_cpu_leaves_the_switches_alone():
    """Clients train side by side while the caller goes on; what a GPU may do concerns neither."""
    seen = []

    class Watching(nn.Linear):
        def forward(self, images):
            seen.append(switches())
            return super().forward(images.flatten(1))

    before = switches()
    trainer = SeparateTrainer(Watching(64, 3), user_data_of([2, 2]), LocalTraining(), numerics=Numerics(tf32=True))
    trainer.mean(flatten(trainer.model), [0, 1], 0)
    assert set(seen) == {before}
    assert switches() == before
