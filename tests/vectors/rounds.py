"""Terms, quantiser, parameters, keystreams and the context of a round (docs/protocol.md §1, §3 and §5)."""

import math
import struct
from fractions import Fraction

from primitives import PRIME_31, RING_16, RING_32, case, enc, expand, keystream_words, refused, sha256, words


def terms_cases():
    def terms(name, success=True, **changed):  # noqa: FBT002 - a case's own field
        given = {"model": b"weights", "dimension": 10, "min_included": 1, "step": 0, "configuration": b""}
        given |= changed
        _, *rest = given.values()
        digest = {"digest": sha256(enc("coterie/v2/terms", sha256(given["model"]), *rest))} if success else {}
        return case(name, success=success, **given, **digest)

    yield terms("plain")
    yield terms("an empty model", model=b"")
    yield terms("a long model", model=bytes(range(256)) * 40)
    yield terms("a later step", step=70_000)
    yield terms("a configuration", configuration=b'{"learning_rate":0.1}')
    yield terms("large numbers", dimension=2**32, min_included=2**40, step=2**63 - 1)
    for name in ("dimension", "min_included"):
        yield terms(f"no {name}", success=False, **{name: 0})
    for name in ("dimension", "min_included", "step"):
        yield terms(f"a {name} of 2^63", success=False, **{name: 2**63})
        yield terms(f"a negative {name}", success=False, **{name: -1})


def levels_of(modulus, weight_cap, cohort):
    return (modulus - 1) // (cohort * weight_cap) + 1


QUANTISERS = (
    (RING_16, 1.0, 1, 12), (RING_16, 0.25, 9, 60), (RING_16, 1.0, 1, 65_535), (RING_32, 1.5, 1, 12),
    (RING_32, 0.1, 1000, 120), (RING_32, 1.0, 1, 1), (RING_32, 3.0, 2**16, 2**10), (PRIME_31, 1.0, 7, 300),
)  # fmt: skip


def quantiser_cases():
    """Words of §1, where exact arithmetic leaves no doubt: ⌊y + u⌋ with y + u away from whole numbers."""
    secret = sha256(b"coterie vector: a device's secret")
    terms = sha256(b"coterie vector: the digest of some terms")
    key = expand(secret, enc("coterie/v2/rounding", terms))
    for modulus, clip, weight_cap, cohort in QUANTISERS:
        levels = levels_of(modulus, weight_cap, cohort)
        given = {
            "modulus": modulus, "clip": struct.pack("<d", clip), "weight_cap": weight_cap, "cohort": cohort,
            "levels": levels, "secret": secret, "terms": terms,
        }  # fmt: skip
        for weight in sorted({1, (weight_cap + 1) // 2, weight_cap}):
            values = [clip * share for share in (-1.0, -0.731, -0.5004, -0.01, 1e-4, 0.12345, 0.6, 0.9999, 1.0)]
            values += [2 * clip, -1e6 * clip]
            finite, drawn = rounded(values, weight, (modulus, clip, levels), key)
            yield case(f"weight {weight}", **given, weight=weight, floats=doubles(finite), words=drawn)
            zeros, drawn = rounded([0.01 * clip] * 3, weight, (modulus, clip, levels), key)
            if len(zeros) == 3:
                fields = {"weight": weight, "floats": doubles(zeros), "words": drawn}
                yield case(f"weight {weight}, one value", **given, **fields)
        for bad in (float("nan"), float("inf"), float("-inf")):
            zero, drawn = rounded([0.0] * 5, weight_cap, (modulus, clip, levels), key)
            if len(zero) == 5:
                values = [clip, bad, 0.0, -clip, 0.5 * clip]
                fields = {"weight": weight_cap, "floats": doubles(values), "words": drawn}
                yield case("not finite: the zero update", **given, **fields)
        for weight in (0, weight_cap + 1):
            yield refused(f"weight {weight}", **given, weight=weight, floats=doubles([0.0]))
        for name, changed in (("one level", {"cohort": modulus}), ("no users", {"cohort": 0})):
            yield refused(name, **given | changed, weight=1, floats=doubles([0.0]))


def doubles(values):
    return b"".join(struct.pack("<d", value) for value in values)


def rounded(values, weight, quantiser, key):
    """The values whose words are sure, and the vector of those; of a value in doubt the next takes the draw."""
    modulus, clip, levels = quantiser
    size = 2 if modulus == RING_16 else 4
    span = weight * (levels - 1)
    places = min(8 * size, 52 - span.bit_length())
    kept, vector = [], []
    stream = keystream_words(key, RING_16 if modulus == RING_16 else RING_32)
    draw = next(stream)
    for value in values:
        unsigned = draw if span % 2 else (draw + 2 ** (8 * size - 1)) % 2 ** (8 * size)
        uniform = Fraction(unsigned >> (8 * size - places), 2**places)
        clipped = min(max(Fraction(value), -Fraction(clip)), Fraction(clip))
        exact = span * (clipped + Fraction(clip)) / (2 * Fraction(clip)) + uniform
        end = clipped in {-Fraction(clip), Fraction(clip)}
        near = Fraction(4, 2**places)
        if abs(exact - round(exact)) <= near and not (end and near < uniform < 1 - near):
            continue
        kept.append(value)
        vector.append(math.floor(exact) if not end else round(exact - uniform))
        draw = next(stream)
    vector += [weight, *[1] * (8 // size)]
    return kept, b"".join(number.to_bytes(size, "little") for number in vector)


def parameter_cases():
    for colluders, losses in ((200, 300), (0, 0), (0, 499), (333, 333), (999, 0), (100, 449)):
        for users in (1, 2, 12, 99, 100, 1000, 65_535):
            threshold = (users + users * colluders // 1000) // 2 + 1
            fields = {"colluders": colluders, "losses": losses, "users": users}
            counts = {"colluding": users * colluders // 1000, "lost": users * losses // 1000}
            yield case("shares", **fields, **counts, threshold=threshold)
    for colluders, losses in ((400, 300), (200, 400), (1000, 0), (0, 500), (-1, 0), (0, -1)):
        yield refused("γ + 2δ is not below 1", colluders=colluders, losses=losses)


def rounding_cases():
    for number in range(3):
        secret, terms = sha256(b"coterie vector: secret %d" % number), sha256(b"coterie vector: terms %d" % number)
        key = expand(secret, enc("coterie/v2/rounding", terms))
        yield case("a key", secret=secret, terms=terms, key=key)


# The first number whose keystream has, among its first 256 words, one that must be rejected: word 249.
REJECTING = 812_025


def keystream_cases():
    seed = sha256(b"coterie vector: keystream")
    for modulus in (RING_16, RING_32, PRIME_31):
        for start in (0, 1, 1000):
            fields = {"seed": seed, "modulus": modulus, "start": start}
            yield case("words", **fields, words=words(seed, modulus, start))
    seed = sha256(f"coterie vector: rejection {REJECTING}".encode())
    raw = words(seed, RING_32, 249, 1)
    assert int.from_bytes(raw, "little") & PRIME_31 == PRIME_31
    for modulus in (RING_32, PRIME_31):
        yield case("word 249 is q", seed=seed, modulus=modulus, start=240, words=words(seed, modulus, 240))


TERMS = sha256(b"coterie vector: the digest of some terms")


def context(*round_, quantiser, parameters):
    """The digest of a round: its quantiser and parameters enter by digests of their own."""
    modulus, clip, weight_cap, cohort = quantiser
    fields = (modulus, struct.pack("<d", clip), weight_cap, cohort, levels_of(modulus, weight_cap, cohort))
    digests = (sha256(enc("coterie/v2/quantiser", *fields)), sha256(enc("coterie/v2/parameters", *parameters)))
    return sha256(enc("coterie/v2/context", *round_, TERMS, *digests))


CONTEXT = context("sealed", "secagg+", "keyboard", 7, quantiser=QUANTISERS[0], parameters=(200, 300))


def context_cases():
    for mode in ("sealed", "unsealed"):
        for inner in ("open", "secagg", "secagg+"):
            for number, (scope, round_) in enumerate((("keyboard", 7), ("fotos/ñ", 2**63 - 1))):
                quantiser, parameters = QUANTISERS[4 * number], ((200, 300), (0, 499))[number]
                modulus, clip, weight_cap, cohort = quantiser
                fields = {"mode": mode, "inner": inner, "scope": scope, "round": round_}
                shares = {"colluders": parameters[0], "losses": parameters[1]}
                words_of = {"modulus": modulus, "clip": struct.pack("<d", clip), "weight_cap": weight_cap}
                digest = context(mode, inner, scope, round_, quantiser=quantiser, parameters=parameters)
                yield case("a round", **fields, **words_of, cohort=cohort, **shares, terms=TERMS, context=digest)


FILES = {
    "terms": terms_cases,
    "quantiser": quantiser_cases,
    "parameters": parameter_cases,
    "rounding": rounding_cases,
    "keystream": keystream_cases,
    "context": context_cases,
}
