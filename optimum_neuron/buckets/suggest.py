"""Choose buckets by dynamic programming over the distinct lengths: exact, no choice of the same number pads less.

A sequence goes to the smallest bucket that holds it and is padded to it. An optimal bucket is always one of the
lengths, for a larger one could shrink to the longest sequence in it. With lengths c[1] < ... < c[m], P[j] sequences of
at most c[j], and T[k][j] the fewest tokens that these take in k buckets,

    T[k][j] = min over i < j of T[k - 1][i] + c[j] * (P[j] - P[i])

It does not depend on models or files.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..base.core import Choice, Rejected
from ..errors import ConfigError
from ..options.sizes import is_count


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketUse:
    """Sequences that are padded to one bucket."""

    bucket: int
    num_sequences: int
    real_tokens: int
    padding_tokens: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketOption:
    """The best buckets of one number."""

    buckets: tuple[int, ...]
    """Lengths to compile for, rising."""
    real_tokens: int
    padding_tokens: int
    per_bucket: tuple[BucketUse, ...] = ()
    """What is padded to each of them."""

    @property
    def waste(self) -> float:
        """Padding tokens for each real token."""
        return self.padding_tokens / self.real_tokens

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"num_buckets": len(self.buckets), **dataclasses.asdict(self), "waste": self.waste}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketAdvice:
    """Suggest buckets for a data set, with the cost of using fewer."""

    num_sequences: int
    longest: int
    options: tuple[BucketOption, ...]
    """The best buckets of each number, from one on; none is left out before padding is as small as it gets."""

    @property
    def buckets(self) -> tuple[int, ...]:
        """The advice: least padding within the number that was allowed."""
        return self.options[-1].buckets

    @property
    def choice(self) -> Choice[str]:
        """The advice with its reason and the smaller numbers that lost."""
        *fewer, best = self.options
        return Choice(
            value=_text(best.buckets),
            reason=f"least padding: {best.waste:.1%} of the real tokens",
            rejected=tuple(
                Rejected(candidate=_text(option.buckets), reason=f"{option.waste:.1%} padding")
                for option in reversed(fewer)
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and for `--json`."""
        return {
            "num_sequences": self.num_sequences,
            "longest": self.longest,
            "buckets": self.choice.to_dict(),
            "options": [option.to_dict() for option in self.options],
            "flags": {
                "prompts of text-generation": f"--prefill_buckets {_text(self.buckets)}",
                "other tasks": f"--sequence_length {_text(self.buckets)}",
            },
        }

    def _repr_html_(self) -> str:
        from ..pages import buckets_page, embedded

        return embedded(buckets_page(self.to_dict()))


def suggest_buckets(lengths: Iterable[int], max_buckets: int = 6, multiple_of: int = 1) -> BucketAdvice:
    """Suggest the lengths to compile for that pad some sequences least.

    Args:
        lengths: tokens of each sequence.
        max_buckets: largest number of buckets; each of them is one more compile.
        multiple_of: round every bucket up to a multiple of this.

    Raises:
        ConfigError: there are no lengths, or one of the numbers is not a whole number of at least 1.

    Example:
        ```python
        from optimum_neuron import suggest_buckets

        advice = suggest_buckets([12, 15, 60, 61, 500], max_buckets=3)
        assert advice.buckets == (15, 61, 500)
        assert advice.options[-1].padding_tokens == 3 + 1
        ```
    """
    counted = Counter(lengths)
    _require_counts({"max_buckets": max_buckets, "multiple_of": multiple_of}, counted)
    rounded: Counter[int] = Counter()
    for length, count in counted.items():
        rounded[-(-length // multiple_of) * multiple_of] += count
    real_tokens = sum(length * count for length, count in counted.items())
    options = [
        BucketOption(
            buckets=buckets,
            real_tokens=real_tokens,
            padding_tokens=tokens - real_tokens,
            per_bucket=tuple(_uses(buckets, counted)),
        )
        for buckets, tokens in _best_buckets(rounded, max_buckets)
    ]
    return BucketAdvice(num_sequences=counted.total(), longest=max(counted), options=tuple(options))


def _uses(buckets: Iterable[int], counted: Mapping[int, int]) -> Iterator[BucketUse]:
    """Count the sequences of each bucket, the smallest that holds them."""
    below = 0
    for bucket in buckets:
        own = {length: count for length, count in counted.items() if below < length <= bucket}
        num_sequences = sum(own.values())
        real_tokens = sum(length * count for length, count in own.items())
        padding_tokens = bucket * num_sequences - real_tokens
        yield BucketUse(
            bucket=bucket, num_sequences=num_sequences, real_tokens=real_tokens, padding_tokens=padding_tokens
        )
        below = bucket


def _best_buckets(counts: Mapping[int, int], max_buckets: int) -> list[tuple[tuple[int, ...], int]]:
    """The best buckets of each number from one on, and the tokens that all sequences take in them."""
    import numpy

    sizes = numpy.array(sorted(counts), dtype=numpy.int64)
    # Index 0 stands for no length at all, so that one bucket follows the same rule as more.
    at_most = numpy.concatenate([[0], numpy.cumsum([counts[int(size)] for size in sizes])])
    tokens = numpy.concatenate([[0], sizes * at_most[1:]])
    before = [numpy.zeros(len(sizes) + 1, dtype=numpy.int64)]
    best = [int(tokens[-1])]
    for _ in range(1, min(max_buckets, len(sizes))):
        fewer, tokens, cut = tokens, tokens.copy(), numpy.zeros_like(tokens)
        for j in range(1, len(sizes) + 1):
            totals = fewer[:j] + sizes[j - 1] * (at_most[j] - at_most[:j])
            cut[j] = totals.argmin()
            tokens[j] = totals[cut[j]]
        before.append(cut)
        best.append(int(tokens[-1]))
    return [(_walk_back(sizes, before[: num + 1]), total) for num, total in enumerate(best)]


def _walk_back(sizes: Any, before: list[Any]) -> tuple[int, ...]:
    """The buckets of a table: the largest length, then where its range begins, and so on."""
    buckets, j = [], len(sizes)
    for cut in reversed(before):
        buckets.append(int(sizes[j - 1]))
        j = int(cut[j])
    assert j == 0, "the smallest bucket begins with the shortest sequence"
    return tuple(reversed(buckets))


def _require_counts(options: Mapping[str, int], lengths: Mapping[int, int]) -> None:
    problems = [f"{name}={value!r}" for name, value in options.items() if not is_count(value)]
    problems += [f"length {value!r}" for value in lengths if not is_count(value)][:5]
    if problems or not lengths:
        message = f"Buckets cannot be suggested for {'; '.join(problems) or 'no lengths'}."
        hint = "Pass the number of tokens of each sequence; all numbers are whole and at least 1."
        raise ConfigError(message, hint=hint, problems=problems)


def _text(buckets: Iterable[int]) -> str:
    return ",".join(map(str, buckets))
