"""Python that the compiler of the hardware does not take is refused, with line, rule and fix, if that is asked for."""

from __future__ import annotations

import enum
import functools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from optimum_neuron.errors import KernelError
from optimum_neuron.nki import analyze, collectives as ncc, isa as nisa, jit, language as nl, problems_of

TABLE = torch.ones(128, 4)
WORDS = ("a", "b")


def store(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


class Mode(enum.Enum):
    fast = 1


class Options(nl.NKIObject):
    def __init__(self, rows):
        self.rows = rows


class Foreign:
    pass


def allowed(x):
    """Everything of the language guide."""
    options, found, rest = Options(4), [], {"a": 1}
    for number in range(2):
        found.append(number)
    for key in rest:
        print(f"{key} of {x.shape}", rest[key])
    while len(found) < 4:
        found.append(max(1, math.ceil(2.5)))
    first, second = (1, 2)
    mode = Mode.fast
    assert first < second and x.shape[0] == 128, "shape"
    tile: object = nl.load(x)
    with nl.no_reorder():
        if mode == Mode.fast and x is not None:
            nisa.tensor_scalar(tile, tile, nl.multiply, 2.0 if options.rows == 4 else 1.0)
    count = nisa.register_alloc(3)
    while count:
        nisa.register_move(count, count - 1)
    for _ in nl.dynamic_range(nisa.register_alloc(2)):
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    return store(tile)


def tried(x):
    try:
        return store(nl.load(x))
    except ValueError:
        return None


def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)


def recursive(x):
    return store(nl.multiply(nl.load(x), factorial(3)))


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


def mutual(x):
    return store(nl.load(x)) if even(4) else None


def comprehension(x):
    tiles = [nl.load(x) for _ in range(2)]
    return store(tiles[0])


def generator(x):
    return store(nl.multiply(nl.load(x), sum(n for n in range(3))))


def yields(x):
    yield store(nl.load(x))


def inner(x):
    def helper(tile):
        return store(tile)

    return helper(nl.load(x))


def anonymous(x):
    double = lambda tile: nl.multiply(tile, 2.0)  # noqa: E731 - what is refused
    return store(double(nl.load(x)))


def raises(x):
    if x.shape[0] != 128:
        raise ValueError("rows")
    return store(nl.load(x))


def imports(x):
    import itertools

    for _ in itertools.count():
        return store(nl.load(x))


def deletes(x):
    tile = nl.load(x)
    other = tile
    del tile
    return store(other)


def opens(x):
    with open(__file__) as file:
        file.read()
    return store(nl.load(x))


def walrus(x):
    if (rows := x.shape[0]) > 1:
        return store(nl.load(x)) if rows else None


def sets(x):
    return store(nl.load(x)) if x.shape[0] in {128, 64} else None


def matches(x):
    match x.shape[0]:
        case 128:
            return store(nl.load(x))


def globals_(x):
    global WORDS
    WORDS = WORDS + ()
    return store(nl.load(x))


def integer_keys(x):
    table = {1: "a"}
    return store(nl.load(x)) if table else None


def large(x):
    return store(nl.multiply(nl.load(x), 3000000000))


def enumerates(x):
    for _, _ in enumerate(WORDS):
        pass
    return store(nl.load(x))


def numpy_inside(x):
    scale = np.sqrt(4.0)
    return store(nl.multiply(nl.load(x), float(scale)))


def other_math(x):
    return store(nl.multiply(nl.load(x), math.tanh(0.5)))


def closed_over(x):
    return store(nl.load(x)) if TABLE.shape == x.shape else None


def foreign(x):
    return store(nl.load(x)) if Foreign() else None


REFUSED = {
    tried: ("try", "try:"),
    recursive: ("recursion", "return 1 if n == 0 else n * factorial(n - 1)"),
    mutual: ("recursion", "return n != 0 and even(n - 1)"),
    comprehension: ("comprehension", "tiles = [nl.load(x) for _ in range(2)]"),
    generator: ("builtin", "return store(nl.multiply(nl.load(x), sum(n for n in range(3))))"),
    yields: ("generator", "yield store(nl.load(x))"),
    inner: ("inner function", "def helper(tile):"),
    anonymous: ("inner function", "double = lambda tile: nl.multiply(tile, 2.0)  # noqa: E731 - what is refused"),
    raises: ("raise", 'raise ValueError("rows")'),
    imports: ("import", "import itertools"),
    deletes: ("del", "del tile"),
    opens: ("with", "with open(__file__) as file:"),
    walrus: ("walrus", "if (rows := x.shape[0]) > 1:"),
    sets: ("set", "return store(nl.load(x)) if x.shape[0] in {128, 64} else None"),
    matches: ("match", "match x.shape[0]:"),
    globals_: ("global", "global WORDS"),
    integer_keys: ("dict", 'table = {1: "a"}'),
    large: ("value", "return store(nl.multiply(nl.load(x), 3000000000))"),
    enumerates: ("builtin", "for _, _ in enumerate(WORDS):"),
    numpy_inside: ("library", "scale = np.sqrt(4.0)"),
    other_math: ("builtin", "return store(nl.multiply(nl.load(x), math.tanh(0.5)))"),
    closed_over: ("closure", "return store(nl.load(x)) if TABLE.shape == x.shape else None"),
    foreign: ("class", "return store(nl.load(x)) if Foreign() else None"),
}


@pytest.fixture
def x():
    return torch.randn(128, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda kernel: kernel.__name__)
def test_python_that_the_compiler_does_not_take_is_refused(kernel, x):
    rule, source = REFUSED[kernel]
    with pytest.raises(KernelError) as caught:
        jit(kernel, platform_rules=True)(x)
    details = caught.value.details
    file, _, number = details["line"].rpartition(":")
    assert details["rule"] == rule and file == __file__
    assert Path(file).read_text().splitlines()[int(number) - 1].strip() == source
    assert source in str(caught.value) and caught.value.hint and details["problems"][0]["document"]


@pytest.mark.parametrize(
    "kernel", [kernel for kernel in REFUSED if kernel is not yields], ids=lambda kernel: kernel.__name__
)
def test_it_runs_otherwise(kernel, x):
    assert jit(kernel)(x).shape == x.shape


def test_all_problems_are_reported_once(x):
    problems = problems_of(generator)
    assert [problem.rule for problem in problems] == ["builtin", "generator"]
    assert [problem.rule for problem in problems_of(functools.partial(jit(mutual)))] == ["recursion"]
    assert not problems_of(np.sqrt)


def test_what_the_guide_has_is_taken(x):
    torch.testing.assert_close(jit(allowed, platform_rules=True)(x), 2 * x + 2)
    assert not problems_of(allowed)


def test_the_environment_asks_for_the_rules(x, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_NKI_PLATFORM_RULES", "1")
    with pytest.raises(KernelError) as caught:
        jit(comprehension)(x)
    assert caught.value.details["rule"] == REFUSED[comprehension][0]
    assert jit(comprehension, platform_rules=False)(x).shape == x.shape


def on_tensor(x):
    tile = nl.load(x)
    if tile:
        nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    return store(tile)


def on_register(x):
    if nisa.register_alloc(1):
        return store(nl.load(x))


def loop_on_register(x):
    for _ in range(nisa.register_alloc(1)):
        return store(nl.load(x))


@pytest.mark.parametrize(
    ("kernel", "rule"), [(on_tensor, "branch"), (on_register, "branch"), (loop_on_register, "loop")]
)
def test_branches_and_loops_on_values_are_refused(kernel, rule, x):
    with pytest.raises(KernelError) as caught:
        jit(kernel, platform_rules=True)(x)
    assert caught.value.details["rule"] == rule and caught.value.details["line"].startswith(__file__)
    assert jit(kernel)(x).shape == x.shape


def exchanged_argument(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    ncc.all_reduce([x], [out], ncc.ReplicaGroup([[0]]), nl.add)
    return out


def exchanged_result(x):
    part, out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm), nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nisa.dma_copy(dst=part, src=x)
    ncc.all_reduce([part], [out], ncc.ReplicaGroup([[0]]), nl.add)
    return out


def exchanged_copies(x):
    part, total = nl.ndarray(x.shape, x.dtype, nl.hbm), nl.ndarray(x.shape, x.dtype, nl.hbm)
    nisa.dma_copy(dst=part, src=x)
    ncc.all_reduce([part], [total], ncc.ReplicaGroup([[0]]), nl.add)
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


@pytest.mark.parametrize("kernel", [exchanged_argument, exchanged_result])
def test_collectives_on_arguments_and_results_are_refused(kernel, x):
    with pytest.raises(KernelError) as caught:
        jit(kernel, platform_rules=True)(x)
    assert caught.value.details["rule"] == "collective_io" and "ncc.all_reduce" in str(caught.value)
    torch.testing.assert_close(jit(kernel)(x), x)
    torch.testing.assert_close(jit(exchanged_copies, platform_rules=True)(x), x)


def test_an_analysis_lists_what_the_compiler_does_not_take(x):
    analysis = analyze(comprehension, x)
    assert [problem.rule for problem in analysis.platform] == ["comprehension"]
    assert analysis.to_dict()["platform"][0]["hint"] == "Append to a list in a for loop."
