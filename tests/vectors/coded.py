"""Coded shares of a mask (LightSecAgg): the code's numbers, and every user's share, by Lagrange's formula."""

import struct
from itertools import islice

from primitives import PRIME_31 as P
from primitives import keystream_words


def keystream(seed, count):
    """The first words of a seed's keystream, modulo p."""
    return list(islice(keystream_words(seed, P), count))


def value_at(point, values):
    """The value at a point of the polynomial with these values at 1, 2, …"""
    total = 0
    for j, value in enumerate(values, 1):
        term = value
        for k in range(1, len(values) + 1):
            if k != j:
                term = term * (point - k) * pow(j - k, -1, P) % P
        total += term
    return total % P


def coded():
    """Cases of codes and shares."""
    for users, colluders, losses, size in ((3, 200, 300, 5), (12, 200, 300, 17), (20, 100, 400, 9), (9, 0, 0, 4)):
        t, left = users * colluders // 1000, users - users * losses // 1000
        needed = left - 2 * min(max(1, users // 20), max(0, (left - t - 1) // 2))
        mask, noise = keystream(bytes([users]) * 32, size), bytes([users + 1]) * 32
        length = -(-size // (needed - t))
        flat = mask + [0] * (length * (needed - t) - size) + keystream(noise, t * length)
        pieces = [flat[length * row : length * (row + 1)] for row in range(needed)]
        shares = [
            value_at(needed + 1 + user, [piece[at] for piece in pieces])
            for user in range(users)
            for at in range(length)
        ]
        yield {
            "name": f"{users} users", "success": True, "users": users, "colluders": colluders, "losses": losses,
            "privacy": t, "needed": needed, "noise": noise.hex(),
            "mask": struct.pack(f"<{size}I", *mask).hex(),
            "shares": struct.pack(f"<{len(shares)}I", *shares).hex(),
        }  # fmt: skip


FILES = {"coded": coded}
