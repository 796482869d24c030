"""Budgets in tests: pytest finds this module by itself where the package is installed.

    pytest --neuron          # the limits of neuron.toml are tests too; --neuron=FILE is another budget

A test asks for the fixtures by name: `assert_compiles(MODEL, **options)`, `assert_close(MODEL, **options)`,
`assert_within(MODEL, **options, tpot_ms=3.0)`, `neuron_model(MODEL, **options)`. With the marker
`neuron_targets("inf2.xlarge", "trn1.2xlarge")` and the fixture `neuron_target` it runs once for each instance.
docs/budgets.md has an example.

A failed assertion names each value and its limit. Nothing of torch is imported before a test asks for it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..modeling import NeuronModel
    from .config import Entry
    from .report import BudgetReport, Row

_MARK = "neuron_targets"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--neuron`."""
    group = parser.getgroup("neuron", "limits of models, kernels, and scripts on simulated NeuronCores")
    group.addoption(
        "--neuron",
        metavar="FILE",
        nargs="?",
        const="",
        help="also test the limits of a budget (default: neuron.toml, or [tool.neuron] of pyproject.toml, in rootdir)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line("markers", f"{_MARK}(*instances): run the test once for each simulated instance")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a marked test its instances."""
    mark = metafunc.definition.get_closest_marker(_MARK)
    if mark is not None and "neuron_target" in metafunc.fixturenames:
        metafunc.parametrize("neuron_target", mark.args)


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each limit of the budget."""
    file = config.getoption("--neuron")
    if file is None:
        return
    from ..errors import ConfigError
    from .config import find_budget, read_budget

    try:
        path = Path(file) if file else find_budget(config.rootpath)
        entries = read_budget(path)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from error
    budget = Budget.from_parent(session, path=path.absolute(), name=path.name)
    for entry in entries:
        for quantity in entry.limits:
            name = f"{entry.name}[{quantity}]"
            items.append(LimitItem.from_parent(budget, name=name, entry=entry, quantity=quantity))


class Budget(pytest.Collector):
    """The file of a budget; its report is made for the first of its tests."""

    _report: BudgetReport | None = None

    def collect(self) -> list[pytest.Item]:
        """Return nothing: `pytest_collection_modifyitems` adds the tests, wherever the session looks for files."""
        return []

    def rows(self, entry: str) -> list[Row]:
        """Return the values of an entry."""
        from .report import check_budget

        self._report = self._report or check_budget(self.path)
        return [row for row in self._report.rows if row.entry == entry]


class LimitItem(pytest.Item):
    """One limit of an entry."""

    def __init__(self, *, entry: Entry, quantity: str, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.entry, self.quantity = entry, quantity

    def runtest(self) -> None:
        """Compare the value with its limit."""
        assert isinstance(self.parent, Budget)
        (row,) = (row for row in self.parent.rows(self.entry.name) if row.quantity == self.quantity)
        if not row.passed:
            raise AssertionError(row.sentence)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Return the sentence of a limit that is not kept, or an error's message, without a traceback."""
        from ..errors import NeuronError

        if isinstance(excinfo.value, (AssertionError, NeuronError)):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where it is, and its title."""
        return self.path, None, f"{self.path.name}: {self.name}"


@pytest.fixture
def neuron_target() -> str | None:
    """Instance of the test, of `@pytest.mark.neuron_targets`; None without the marker: the default instance."""
    return None


@pytest.fixture
def neuron_model(neuron_target: str | None) -> Iterator[Callable[..., NeuronModel]]:
    """Compile a model as `from_pretrained` does: `neuron_model(MODEL, **options)`. It is closed after the test."""
    with contextlib.ExitStack() as stack:

        def compiled(model: str | Path, **options: Any) -> NeuronModel:
            from .. import modeling
            from ..sources import find_task, infer_task, load_source

            if neuron_target is not None:
                options.setdefault("instance_type", neuron_target)
            source = load_source(model)
            task = options.get("task") or infer_task(source.config).value
            model_class = getattr(modeling, find_task(task, source.config.model_type).model_class)
            return stack.enter_context(model_class.from_pretrained(model, **options))

        yield compiled


@pytest.fixture
def assert_within(neuron_target: str | None) -> Callable[..., None]:
    """Assert limits of a model: `assert_within(MODEL, **options, tpot_ms=3.0)`, with the names of docs/budgets.md."""

    def check(model: str | Path, **options: Any) -> None:
        __tracebackhide__ = True
        from .config import Entry
        from .limits import LIMITS
        from .measure import measure
        from .report import rows_of

        known = LIMITS["model"]
        limits = {name: options.pop(name) for name in [*options] if name in known}
        if neuron_target is not None:
            options.setdefault("instance", neuron_target)
        entry = Entry(kind="model", name=str(model), subject=str(model), options=options, limits=limits)
        if failed := [row.sentence for row in rows_of(entry, measure(entry), None) if not row.passed]:
            raise AssertionError("\n".join(failed))

    return check


@pytest.fixture
def assert_compiles(assert_within: Callable[..., None]) -> Callable[..., None]:
    """Assert that every operator runs on the target, and that the model fits: `assert_compiles(MODEL, **options)`."""
    return functools.partial(assert_within, compiles=True)


@pytest.fixture
def assert_close(assert_within: Callable[..., None]) -> Callable[..., None]:
    """Assert that a compiled model computes what transformers does in float32, within the tolerance of exports.

    `assert_close(MODEL, **options, num_equal_tokens=32, max_abs_error=0.1)` asserts more.
    """
    return functools.partial(assert_within, validated=True)
