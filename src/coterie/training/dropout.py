"""Masks of dropout.
"""

import numpy as np
import torch
from torch import Tensor, nn

from coterie.values import IntArray

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_MASK = 2**40
"""Counters of one mask lie below those of the next."""
_LEVELS = 2**16
PER_WORD = 4
"""Places that one 64-bit word decides about."""


def client_keys(seed: int, round_: int, users: IntArray) -> IntArray:
    """Return a key for each user in a round.

    >>> client_keys(0, 3, np.array([7])) == client_keys(0, 3, np.array([8, 7]))[1:]
    array([ True])
    """
    base = int(np.random.SeedSequence((seed, round_)).generate_state(1, np.uint64)[0].astype(np.int64))
    return mix_bits(base + torch.tensor(users + 1) * _GOLDEN).numpy()


def step_keys(keys: Tensor, steps: Tensor) -> Tensor:
    """Return the keys of clients' steps."""
    return mix_bits(keys + steps * _GOLDEN)


def mix_bits(words: Tensor) -> Tensor:
    """Return 64-bit words scrambled, each on its own; multiplication wraps around at 2^64."""
    words = (words ^ _shifted(words, 30)) * _FIRST
    words = (words ^ _shifted(words, 27)) * _SECOND
    return words ^ _shifted(words, 31)


def _shifted(words: Tensor, by: int) -> Tensor:
    """Shift to the right, zeros in front; torch's own shift repeats the sign."""
    return torch.bitwise_and(words >> by, 2 ** (64 - by) - 1)


def counters(places: int, number: int, device: torch.device) -> Tensor:
    """Return the counters of the first `places` places of a step's mask of this number: one for four places."""
    words = torch.arange(-(-places // PER_WORD), device=device)
    return (words + number * _MASK) * _GOLDEN


def levels(keys: Tensor, counted: Tensor) -> Tensor:
    """Return levels from -2^15 to 2^15 - 1, four for each counter, for each key."""
    quarters: Tensor = _Quarters.apply(mix_bits(keys.unsqueeze(-1) + counted))  # type: ignore[no-untyped-call]
    return quarters


class _Quarters(torch.autograd.Function):
    """The four quarters of each word; a function of its own because `torch.func.vmap` cannot do it by itself."""

    @staticmethod
    def forward(words: Tensor) -> Tensor:
        return words.view(torch.int16)

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[Tensor], output: Tensor) -> None:
        """Keep nothing: integers have no gradient."""

    @staticmethod
    def vmap(info: object, in_dims: tuple[int], words: Tensor) -> tuple[Tensor, int]:
        """Do the same for a stack of words."""
        del info
        return words.movedim(in_dims[0], 0).contiguous().view(torch.int16), 0


def share(probability: float) -> tuple[int, float]:
    """Return the lowest level that is kept, and the factor 1/(1 - p) that keeps the mean; p in 1/65536.

    >>> share(0.5)
    (0, 2.0)
    """
    dropped = min(round(probability * _LEVELS), _LEVELS - 1)
    return dropped - _LEVELS // 2, _LEVELS / (_LEVELS - dropped)


class Draws:
    """Counts the masks that one pass through a model has drawn: each call of a layer draws another."""

    def __init__(self) -> None:
        self.count = 0

    def start(self, *_: object) -> None:
        """Begin a pass; a hook before the model's own call."""
        self.count = 0

    def take(self) -> int:
        """Return the number of the next mask."""
        self.count += 1
        return self.count - 1


class KeyedDropout(nn.Module):
    """`torch.nn.Dropout` with the mask of a key: (mask / (1 - p)) · x; the identity when the model is tested.

    The key is a buffer, so that `torch.func.functional_call` can give every client its own.

    >>> draws = Draws()
    >>> drop = KeyedDropout(0.5, draws)
    >>> first, second = drop(torch.ones(2, 8)), drop(torch.ones(2, 8))
    >>> draws.start()
    >>> torch.equal(drop(torch.ones(2, 8)), first), torch.equal(first, second)
    (True, False)
    """

    key: Tensor

    def __init__(self, probability: float, draws: Draws) -> None:
        super().__init__()
        self.probability, self.draws = probability, draws
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """Return the values, some dropped and the others enlarged."""
        if not self.training or not self.probability:
            return values
        places = values.numel()
        lowest, factor = share(self.probability)
        uniform = levels(self.key, counters(places, self.draws.take(), values.device))
        return values * (uniform[:places].view(values.shape) >= lowest) * factor
