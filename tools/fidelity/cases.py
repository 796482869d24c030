"""Published measurements as cases: the configuration, the published value, and a prediction as a function of the
constants.

The table `published.csv` has one measured value a row, with its source; `models.json` has the configurations of the
models in it. Works are counted once; a prediction is arithmetic on them, so a fit can ask for thousands.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from families import FAMILIES
from loads import Load, load_of, seen

from optimum_neuron.hardware import INSTANCES, TARGETS
from optimum_neuron.simulator import (
    FIRST_BATCH_FIRST_SDK,
    FIRST_FUSED_SDK,
    FIRST_PADDED_SDK,
    Constants,
    CoreRates,
    EstimateRequest,
    ServingPlan,
    ServingTimes,
    Stack,
    auto_cast_of,
    core_rates,
    device_time,
    divided,
    parse_sdk,
    plan_serving,
    run_time,
    serving_times,
    stack_at,
)
from optimum_neuron.simulator.diffusion import PicturePlan, picture_request, picture_times, plan_pictures, read_pipeline
from optimum_neuron.simulator.work import DecoderSizes, Layout, decode_work, decoder_sizes, prefill_work

HERE = Path(__file__).parent

CONTRIBUTED = "contrib/models"
"""Models whose graphs have one bucket, as is the default of NxD Inference: prompts and caches have the full length."""
SEQUENCE_PARALLEL = {"llama70b_perf_comparison.csv": (2048, 4096, 8192, 12288)}
"""Tables of runs with sequence parallelism, and the buckets of their prompts: options of the commands that the tutorial
trn2-llama3.3-70b-tutorial.rst beside the table publishes with it."""
CAPTIONS = 100
"""Texts of a run of CLIP: the published script (aws-neuron-sdk, hf-openai-clip_benchmark.py) has the names of the
classes of CIFAR-100, and repeats one image. "a photo of a sweet_pepper", one of the longest, is 9 tokens."""
WORKERS = 2
"""Batches that a loaded model has in flight in NeuronPerf's benchmarks, at most (its guide, `workers_per_model`): with
more in flight, several models were loaded on each core."""
BATCH_FIRST_SINCE = "2024-05-03"
"""Day from which optimum-neuron compiles Llama with the layout BSH: github.com/huggingface/optimum-neuron, pull request
587."""
FUSED_SINCE = "2024-07-22"
"""Day from which rows that say only their date have SDK 2.19 or later: github.com/huggingface/optimum-neuron, pull
request 661."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One published value."""

    category: str
    model: str
    instance: str
    stack: str
    sdk: str
    date: str
    cores: int | None
    copies: int | None
    batch: int | None
    sequence_length: int | None
    input_length: int | None
    output_length: int | None
    image_size: str
    weight_bytes: int | None
    concurrency: int | None
    """Requests at a time. guidellm 0.1.0 has one less than its `max_concurrency` (guidellm/scheduler/base.py), which is
    as many as the published rate times the published latency."""
    requests: int | None
    """Requests of a run. guidellm 0.1.0 sends five times as many as its run with one client answered in two minutes
    (guidellm/executor/profile_generator.py), a number that follows from the published rate of that run."""
    nodes: int | None
    microbatch: int | None
    global_batch: int | None
    layout: str
    arithmetic: str
    metric: str
    value: float
    unit: str
    source: str
    use: str
    """"held-out" of rows that no constant and no structure was chosen with."""

    @property
    def family(self) -> str:
        """Group that is left out together."""
        return FAMILIES.get(self.model, self.model)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A row with its prediction."""

    row: Row
    predict: Callable[[Constants], float]


def read_rows() -> list[Row]:
    """The table."""
    numbers = {field.name for field in dataclasses.fields(Row) if "int" in str(field.type)}
    with (HERE / "published.csv").open(newline="") as file:
        return [
            Row(**{
                name: (int(text) if text else None) if name in numbers else float(text) if name == "value" else text
                for name, text in row.items()
            })
            for row in csv.DictReader(file)
        ]  # fmt: skip


@functools.cache
def model_config(name: str) -> Any:
    """The transformers configuration of a model of the table."""
    from transformers import AutoConfig

    values = json.loads((HERE / "models.json").read_text())[name]
    return AutoConfig.for_model(**values)


@functools.cache
def sizes_of(name: str) -> DecoderSizes:
    """Sizes of a decoder of the table."""
    return decoder_sizes(model_config(name))


def cases(rows: Iterable[Row]) -> list[Case]:
    """Cases of the rows that the simulator predicts with fitted constants."""
    made = []
    shared: dict[tuple[Any, ...], Timed] = {}
    loads: dict[tuple[Any, ...], Load] = {}
    for row in rows:
        if row.metric.startswith(("decode_", "prefill_")):
            made.append(Case(row=row, predict=_profile(row)))
        elif row.category in ("decoder", "mixture", "hybrid"):
            made.append(Case(row=row, predict=_decoder(row, shared)))
        elif row.category == "served":
            made.append(Case(row=row, predict=_served(row, loads)))
        elif row.category in ("encoder", "cnn", "vit", "graph"):
            made.append(Case(row=row, predict=_graph(row)))
        elif row.category == "diffusion":
            made.append(Case(row=row, predict=_pipeline(row)))
    return made


def _hardware(row: Row) -> tuple[Any, Any, int]:
    instance = INSTANCES[row.instance]
    target = TARGETS[instance.family]
    chips = -(-(row.cores or 1) // target.logical_cores_per_chip())
    return instance, target, chips


def _stack(row: Row) -> Stack:
    """The serving stack as it was then."""
    stack = stack_at(row.stack, parse_sdk(row.sdk) if row.sdk else release(row.date))
    one_bucket = {"pads_prompt": True, "pads_single": True, "pads_cache": True}
    return dataclasses.replace(stack, **one_bucket) if CONTRIBUTED in row.source else stack


def release(date: str) -> tuple[int, ...]:
    """SDK of a day, as far as stacks differ."""
    since = {"2025": FIRST_PADDED_SDK, FUSED_SINCE: FIRST_FUSED_SDK, BATCH_FIRST_SINCE: FIRST_BATCH_FIRST_SDK}
    return next((release for day, release in since.items() if date >= day), (2, 18))


def _layout(row: Row) -> Layout:
    assert row.weight_bytes is not None
    return Layout(
        num_cores=row.cores or 1,
        weight_bytes=row.weight_bytes,
        cache_bytes=2,
        replicate_kv_heads=_stack(row).replicate_kv_heads,
        dense_experts=_stack(row).dense_experts,
        sequence_parallel=_table(row) in SEQUENCE_PARALLEL,
    )


def _table(row: Row) -> str:
    return row.source.rpartition("/")[2]


def _plan(row: Row) -> ServingPlan:
    """Work of the requests of a row."""
    assert row.batch and row.sequence_length and row.input_length and row.output_length
    return plan_serving(
        sizes_of(row.model),
        _stack(row),
        _layout(row),
        batch_size=row.batch,
        sequence_length=row.sequence_length,
        input_length=row.input_length,
        output_length=row.output_length,
        concurrency=row.concurrency,
        prefill_buckets=SEQUENCE_PARALLEL.get(_table(row), ()),
    )


def _decoder(row: Row, shared: dict[tuple[Any, ...], Timed]) -> Callable[[Constants], float]:
    """A row of a decoder; rows of one configuration share a plan, and its times with the newest constants."""
    price = INSTANCES[row.instance].price_reserved_usd_per_h or 0.0
    whole = row.metric not in ("ttft_ms", "tpot_ms")
    shape = (row.batch, row.sequence_length, row.input_length, row.output_length, row.concurrency)
    key = (row.model, row.instance, row.cores, row.weight_bytes, _stack(row), *shape, whole)
    if key not in shared:
        plan = _plan(row)
        # Only whole answers depend on steps at other contexts than the median one.
        shared[key] = _timed(row, plan if whole else dataclasses.replace(plan, steps=()))
    timed = shared[key]

    def predict(constants: Constants) -> float:
        times = timed.times(constants)
        tokens = times.tokens_per_s(timed.plan)
        return {
            "ttft_ms": times.ttft_s * 1e3,
            "tpot_ms": times.tpot_s * 1e3,
            "tokens_per_s": tokens,
            "usd_per_1m": price / 3600 / tokens * 1e6,
        }[row.metric]

    return predict


def _served(row: Row, shared: dict[tuple[Any, ...], Load]) -> Callable[[Constants], float]:
    """A load of clients; rows of one load share its simulation."""
    key = (row.model, row.instance, row.date, row.batch, row.output_length, row.copies)
    if key not in shared:
        shared[key] = functools.lru_cache(maxsize=1)(load_of(row, _timed(row, _plan(row))))
    load = shared[key]
    return lambda constants: seen(load(constants), row.metric)


@dataclasses.dataclass
class Timed:
    """A plan on a machine, with its times by the constants that it was asked for last."""

    plan: ServingPlan
    rates: CoreRates
    generation: int
    family: str
    num_chips: int
    newest: tuple[Constants, ServingTimes] | None = None

    def times(self, constants: Constants) -> ServingTimes:
        """Times with these constants."""
        if self.newest is None or self.newest[0] is not constants:
            fitted, host = constants.cores[self.generation], constants.hosts[self.plan.stack.host]
            times = serving_times(self.plan, self.rates, fitted, host, family=self.family, num_chips=self.num_chips)
            self.newest = (constants, times)
        return self.newest[1]


def _timed(row: Row, plan: ServingPlan) -> Timed:
    instance, target, chips = _hardware(row)
    return Timed(plan, core_rates(target), target.core.generation, instance.family, chips)


def _profile(row: Row) -> Callable[[Constants], float]:
    _, target, chips = _hardware(row)
    sizes, layout, tokens = sizes_of(row.model), _layout(row), row.sequence_length
    assert tokens is not None
    decode = decode_work(sizes, layout, batch_size=1, slots=tokens).total
    prefill = prefill_work(sizes, layout, batch_size=1, tokens=tokens).total
    work = decode if row.metric.startswith("decode") else prefill
    rates, generation = core_rates(target), target.core.generation

    def predict(constants: Constants) -> float:
        if row.metric == "decode_hbm_bytes":
            return float(work.hbm_bytes)
        fitted = dataclasses.replace(constants.cores[generation], launch_us=1e-6)
        time = device_time(work, rates, fitted, decoder=True, num_chips=chips)
        return {
            "decode_ms": time.total_s * 1e3,
            "prefill_ms": time.total_s * 1e3,
            "decode_mbu": work.hbm_bytes / time.total_s / rates.hbm_bytes_per_s,
            "prefill_mfu": work.product_flops / time.total_s / rates.peak_flops_per_s,
        }[row.metric]

    return predict


@functools.cache
def _graph_work(model: str, batch: int, sequence_length: int | None, family: str) -> Any:
    from optimum_neuron.simulator import capture_model
    from optimum_neuron.simulator.work import work_of_program
    from optimum_neuron.sources import load_source

    with tempfile.TemporaryDirectory() as folder:
        values = json.loads((HERE / "models.json").read_text())[model]
        (Path(folder) / "config.json").write_text(json.dumps(values))
        shapes = {"sequence_length": sequence_length} if sequence_length else {}
        if values["model_type"] == "clip":
            shapes |= {"text_batch_size": CAPTIONS, "image_batch_size": batch}
        else:
            shapes["batch_size"] = batch
        auto_cast = auto_cast_of(EstimateRequest(), TARGETS[family], float32=True)
        options = {"torch_dtype": "float32", "auto_cast": auto_cast, "instance_type": family}
        program = capture_model(load_source(folder), **options, **shapes).program
    (name,) = program.graphs
    return work_of_program(program, name, auto_cast=auto_cast)


def _graph(row: Row) -> Callable[[Constants], float]:
    instance, target, _ = _hardware(row)
    assert row.batch and row.concurrency
    work, num_stages = _graph_work(row.model, row.batch, row.sequence_length, instance.family), row.cores or 1
    if num_stages > 1:
        work = divided(work, num_stages)
    rates, generation = core_rates(target), target.core.generation
    copies = row.copies or min(row.concurrency, instance.num_cores) // num_stages
    in_flight = row.concurrency / copies
    models_of_core = max(in_flight / WORKERS, 1.0)
    busy = min(copies * num_stages, target.chip.num_cores)

    def predict(constants: Constants) -> float:
        run = run_time(work, rates, constants.cores[generation], busy_cores=busy)
        host_s = work.total.host_bytes / constants.copy_bytes_per_s
        period_s = run.period_s(host_s, int(in_flight))
        if num_stages == 1:
            # Copies of a model overlap with the run of another one that is loaded on the same core.
            period_s = max(host_s, run.total.total_s, period_s / models_of_core)
        return period_s * in_flight * 1e3 if row.metric == "latency_ms" else row.batch * copies / period_s

    return predict


def _write_pipeline(folder: Path, model: str) -> None:
    """Write model_index.json and the configuration of each component."""
    values = dict(json.loads((HERE / "pipelines.json").read_text())[model])
    index = {"_class_name": values.pop("_class_name")}
    for name, (class_name, config) in values.items():
        is_text = name == "text_encoder"
        index[name] = ["transformers" if is_text else "diffusers", class_name]
        named = {"model_type": "clip_text_model"} if is_text else {"_class_name": class_name}
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps({**named, **config}))
    (folder / "model_index.json").write_text(json.dumps(index))


@functools.cache
def _pictures(model: str, batch_size: int, height: int, width: int) -> PicturePlan:
    """Work of a diffusion pipeline with its own number of steps, the halves of guidance on a core each."""
    with tempfile.TemporaryDirectory() as folder:
        _write_pipeline(Path(folder), model)
        pipeline = read_pipeline(Path(folder), name=model)
        sizes = {"height": height, "width": width}
        request = picture_request(pipeline, EstimateRequest(batch_size=batch_size, export=sizes))
        return plan_pictures(pipeline, request, num_cores=1, halves_apart=True)


def _pipeline(row: Row) -> Callable[[Constants], float]:
    """A diffusion pipeline; rows of latency and of throughput have one plan."""
    instance, target, _ = _hardware(row)
    height, width = map(int, row.image_size.split("x"))
    batch_size = row.batch or 1
    plan = _pictures(row.model, batch_size, height, width)
    rates, generation = core_rates(target), target.core.generation

    def predict(constants: Constants) -> float:
        run_s = picture_times(plan, rates, constants.cores[generation], constants).total_s
        copies = instance.num_cores // 2
        return run_s * 1e3 if row.metric == "latency_ms" else batch_size * copies / run_s

    return predict
