"""`tune(kernel, *args, space=...)`: the options of a kernel that are fastest on the simulated core.

Every option of the space is a keyword of the kernel, with the values to try: sizes of tiles, numbers of buffers, places
of tensors. Each candidate runs once on the given arguments and is measured by `analyze`. The search moves along one
option at a time from the best candidate so far, then takes what is left of the space in order, until the time is over.

It rejects candidates that break a rule of the core, need more SBUF or PSUM than there is, or have another result than
the first candidate. It does not change the kernel's Python.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..base.core import Choice, Rejected
from ..base.progress import Step
from ..base.wording import counted
from ..errors import ConfigError, NeuronError, nearest
from ..upstream.torch import tree_leaves, tree_map
from .analysis import Analysis, analyze
from .comparison import difference_of
from .core import PlainData
from .kernel import simulate
from .named import check_arguments

Options = Mapping[str, Any]
_REFUSALS = (AssertionError, ValueError, IndexError, ZeroDivisionError)
"""How kernels refuse sizes: rules of the core (`KernelError`), their own assertions, and Python's arithmetic."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial(PlainData):
    """One candidate that ran."""

    HIDDEN = ("results", "analysis")

    options: Options
    results: Sequence[Any] | None
    """Its results, and its arguments afterwards; None if it did not run."""
    analysis: Analysis | None
    """What it does on the core; None if it did not run."""
    problem: str
    """Why it cannot be chosen; empty if it can."""

    @property
    def total_us(self) -> float:
        """Simulated time; infinite for a candidate that cannot be chosen."""
        return math.inf if self.problem or self.analysis is None else self.analysis.total_us

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, with the time of a candidate that lost too."""
        return {**super().to_dict(), "total_us": None if self.analysis is None else self.analysis.total_us}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning(PlainData):
    """The best options of a kernel, with the candidates that lost; all times are simulated."""

    choice: Choice[Options]
    """The best options, with the reason."""
    analysis: Analysis
    trials: tuple[Trial, ...]
    """All candidates that ran, the fastest first."""
    num_candidates: int

    def __str__(self) -> str:
        return str(self.choice)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**super().to_dict(), "choice": {**self.choice.to_dict(), "value": dict(self.choice.value)}}


def tune(
    kernel: Callable[..., Any],
    *args: object,
    space: Mapping[str, Sequence[Any]],
    seconds: float = 60.0,
    tolerance: float = 0.02,
    **kwargs: object,
) -> Tuning:
    """Run a kernel with options of a space, and return the fastest on the simulated core.

    Args:
        kernel: a kernel, or a function that could be one.
        *args: its arguments.
        space: values to try of each keyword of the kernel; the first of each make the first candidate.
        seconds: time after which no other candidate starts; at least one runs.
        tolerance: largest difference from the first result that ran, as a share of its largest value.
        **kwargs: its other arguments by name.

    Raises:
        ConfigError: the space names no keyword of the kernel or has no value for one, arguments are missing, or no
            candidate can be chosen.

    Example:
        ```python
        import torch

        from optimum_neuron.nki import jit, language as nl, tune


        @jit
        def double(x, columns):
            out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            for begin in range(0, x.shape[1], columns):
                part = slice(begin, begin + columns)
                nl.store(out[:, part], nl.multiply(nl.load(x[:, part]), 2))
            return out


        tuning = tune(double, torch.ones(128, 2048), space={"columns": [64, 512, 2048]})
        assert tuning.trials[-1].options == {"columns": 64}
        ```
    """
    made = simulate(kernel)
    _check_space(made.function, space)
    check_arguments(made.function, args, {**kwargs, **{name: values[0] for name, values in space.items()}})
    end_s, reference = time.monotonic() + seconds, None
    trials: dict[tuple[int, ...], Trial] = {}
    with Step(f"Tuning {made.function.__name__}") as step:
        for places in _search(space, trials):
            options = {name: values[place] for (name, values), place in zip(space.items(), places, strict=True)}
            trial = _run(made, args, {**kwargs, **options}, options, reference, tolerance)
            trials[places] = trial
            reference = trial.results if reference is None else reference
            step.show(f"{len(trials)} candidates")
            if time.monotonic() >= end_s:
                break
        step.note(counted(len(trials), "candidate"))
    return _chosen([*trials.values()], math.prod(map(len, space.values())), seconds)


def _check_space(function: Callable[..., Any], space: Mapping[str, Sequence[Any]]) -> None:
    parameters = inspect.signature(function).parameters
    unknown = [name for name in space if name not in parameters]
    if unknown and not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        message = f"{function.__name__} has no parameter '{unknown[0]}'{nearest(unknown[0], parameters) or '.'}"
        raise ConfigError(message, hint=f"Choose from {', '.join(parameters)}.", option=unknown[0])
    empty = [name for name, values in space.items() if not len(values)]
    if empty or not space:
        what = f"no value for {empty[0]}" if empty else "no option"
        raise ConfigError(
            f"The space has {what}.", hint='Write it as space={"columns": [256, 512]}.', space=dict(space)
        )


def _search(space: Mapping[str, Sequence[Any]], trials: Mapping[tuple[int, ...], Trial]) -> Iterator[tuple[int, ...]]:
    """Yield candidates that did not run yet, as places of values: neighbors of the best one, then all others."""
    sizes = [len(values) for values in space.values()]
    best: tuple[int, ...] = (0,) * len(sizes)
    yield best
    start = None
    while start != best:
        start = best
        for option, size in enumerate(sizes):
            for place in range(size):
                candidate = (*best[:option], place, *best[option + 1 :])
                if candidate not in trials:
                    yield candidate
            best = min(trials, key=lambda places: trials[places].total_us)
    for candidate in itertools.product(*map(range, sizes)):
        if candidate not in trials:
            yield candidate


def _copy(leaf: object) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.clone()
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _run(
    kernel: Callable[..., Any], args: Sequence[Any], kwargs: Options, options: Options, wanted: object, tolerance: float
) -> Trial:
    args, kwargs = tree_map(_copy, (args, kwargs))  # a kernel may write its arguments
    try:
        analysis = analyze(kernel, *args, **kwargs)
    except _REFUSALS as error:
        problem = error.message if isinstance(error, NeuronError) else f"{type(error).__name__}: {error}"
        return Trial(options=options, results=None, analysis=None, problem=problem)
    results = [leaf for leaf in tree_leaves((analysis.result, args, kwargs)) if hasattr(leaf, "shape")]
    full = next((one for one in analysis.memory if one.overflow_line is not None), None)
    difference = 0.0 if wanted is None else difference_of(wanted, results)
    problem = ""
    if full is not None:
        problem = f"its tiles need {full.peak} bytes of a partition of {full.buffer}, which has {full.capacity}"
    elif difference is None:
        problem = "its result has another shape than that of the first candidate"
    elif math.isinf(difference):
        problem = "its result is no number where that of the first candidate is one, or the other way round"
    elif difference > tolerance:
        problem = f"its result differs from that of the first candidate by {difference:.2g} of the largest value"
    return Trial(options=options, results=results, analysis=analysis, problem=problem)


def _chosen(trials: Sequence[Trial], num_candidates: int, seconds: float) -> Tuning:
    ranked = sorted(trials, key=lambda trial: trial.total_us)
    best = ranked[0]
    if best.problem or best.analysis is None:
        message = f"None of {counted(len(trials), 'candidate')} can be chosen; the first: {trials[0].problem}."
        raise ConfigError(message, hint="Correct the kernel or its space.", trials=[one.to_dict() for one in trials])
    reason = f"{best.total_us:.4g} us, simulated, bound by {best.analysis.bound.value}: {best.analysis.bound.reason}"
    if best is not trials[0] and math.isfinite(trials[0].total_us):
        reason += f"; {trials[0].total_us / best.total_us:.3g} times as fast as {_text(trials[0].options)}"
    reason += f"; the best of {counted(len(trials), 'candidate')}"
    if len(trials) < num_candidates:
        reason += f", {num_candidates - len(trials)} did not run within {seconds:g} s"
    rejected = tuple(Rejected(candidate=_text(one.options), reason=_why(one)) for one in ranked[1:])
    choice = Choice[Options](value=best.options, reason=reason, rejected=rejected)
    return Tuning(choice=choice, analysis=best.analysis, trials=tuple(ranked), num_candidates=num_candidates)


def _why(trial: Trial) -> str:
    if trial.problem or trial.analysis is None:
        return trial.problem
    return f"{trial.analysis.total_us:.4g} us, bound by {trial.analysis.bound.value}"


def _text(options: Options) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())
