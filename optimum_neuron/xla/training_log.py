"""What training scripts print and write for TensorBoard, with `torch_xla.test.test_utils`.

>>> print_test_update("xla:0", 98.5, epoch=2)  # doctest: +ELLIPSIS
| Test Device=xla:0/0 Epoch=2 Accuracy=98.50 Time=...
"""

from __future__ import annotations

import functools
import multiprocessing
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from . import metrics
from .ordinals import global_ordinal


def now(format: str = "%H:%M:%S") -> str:
    """Return the time as text."""
    return datetime.now().strftime(format)


def print_training_update(
    device: object,
    step: int,
    loss: float,
    rate: float,
    global_rate: float,
    epoch: int | None = None,
    summary_writer: object = None,
) -> None:
    """Print the state of a training.

    Args:
        device: where it runs.
        step: number of the step.
        loss: its loss.
        rate: samples a second now.
        global_rate: samples a second since the start.
        epoch: number of the epoch.
        summary_writer: TensorBoard's, which gets the rates too.
    """
    losses = {"Step": step, "Loss": f"{loss:.5f}", "Rate": f"{rate:.2f}", "GlobalRate": f"{global_rate:.2f}"}
    _print("Training", {"Device": _place(device), "Epoch": epoch, **losses})
    write_to_summary(summary_writer, dict_to_write={"examples/sec": rate, "average_examples/sec": global_rate})


def print_test_update(
    device: object, accuracy: float | None, epoch: int | None = None, step: int | None = None
) -> None:
    """Print the accuracy of a test.

    Args:
        device: where it runs.
        accuracy: in percent.
        epoch: number of the epoch.
        step: number of the step.
    """
    shown = None if accuracy is None else f"{accuracy:.2f}"
    _print("Test", {"Device": _place(device), "Step": step, "Epoch": epoch, "Accuracy": shown})


def _place(device: object) -> str:
    return f"{device}/{global_ordinal()}"


def _print(kind: str, values: Mapping[str, Any]) -> None:
    words = [f"{name}={value}" for name, value in values.items() if value is not None]
    print("|", kind, *words, f"Time={now()}", flush=True)


def get_summary_writer(logdir: str | None) -> Any:
    """Return a writer of TensorBoard files, or None without a folder.

    Args:
        logdir: the folder.
    """
    if not logdir:
        return None
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(logdir)
    write_to_summary(writer, 0, {"TensorboardStartTimestamp": time.time()})
    return writer


def write_to_summary(
    summary_writer: Any,
    global_step: int | None = None,
    dict_to_write: Mapping[str, float] = {},  # noqa: B006  (never written)
    write_xla_metrics: bool = False,
) -> None:
    """Write numbers to TensorBoard files.

    Args:
        summary_writer: of `get_summary_writer`; None: nothing is written.
        global_step: number of the step.
        dict_to_write: the numbers.
        write_xla_metrics: write counters and metrics of the device too.
    """
    if summary_writer is None:
        return
    numbers = dict(dict_to_write)
    if write_xla_metrics:
        counters = {name: metrics.counter_value(name) or 0 for name in metrics.counter_names()}
        host = sum(counters[name] for name in metrics.executed_fallback_ops())
        numbers |= counters | {"aten_ops_sum": host}
        for name in metrics.metric_names():
            numbers[f"{name}__TotalSamples"], numbers[f"{name}__Accumulator"], _ = metrics.metric_data(name) or (
                0,
                0,
                [],
            )
    for name, value in numbers.items():
        summary_writer.add_scalar(name, value, global_step)


def close_summary_writer(summary_writer: Any) -> None:
    """Write what is left, and close the files."""
    if summary_writer is not None:
        summary_writer.flush()
        summary_writer.close()


def mp_test(func: Callable[..., Any]) -> Callable[..., int | None]:
    """Let a test method run in a process of its own.

    Args:
        func: the method.
    """

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> int | None:
        process = multiprocessing.Process(target=func, args=args, kwargs=kwargs)
        process.start()
        process.join()
        args[0].assertEqual(process.exitcode, 0)
        return process.exitcode

    return call
