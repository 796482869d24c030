"""The kind of encoder-style models: one capture for each combination of buckets."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...base.core import TensorSpec
from ...base.transformers_types import PreTrainedModel
from ...compiler import Program, capture_error
from ...engine import Input, OutputAxis, RoleSignature, Signature
from ...errors import NeuronError
from ...models import persistent_buffers
from ...sources import ModelSource
from ..base import Kind, Plan, other_graphs, shard_facts
from ..empty import empty_model, split_empty
from ..scenario import Recorder, Scenario
from .architectures import Architecture, find_architecture
from .configuration import BATCH_AXES, NeuronEncoderConfig, Sizes
from .entry import MODEL, Forward, call_options, on_fakes, with_attentions
from .inputs import default_sizes, frame_rule, ignored_inputs, largest_sizes, model_inputs, step_rules
from .scenarios import encoder_scenarios


class EncoderKind(Kind[NeuronEncoderConfig]):
    """Encoder-style models."""

    name = "encoder"
    config_class = NeuronEncoderConfig
    without_effect = {"num_beams": "the model generates nothing"}
    captures_module = True

    def batch_options(self, task: str) -> tuple[str, ...]:
        # Texts and images that are compared have one each.
        compares = task == "zero-shot-image-classification"
        return ("text_batch_size", "image_batch_size") if compares else ("batch_size",)

    def unserved(self, source: ModelSource, task: str) -> str:
        # A model in memory has its own class.
        return "" if source.module is not None else super().unserved(source, task)

    def resolve(
        self, source: ModelSource, config: NeuronEncoderConfig, *, trust_remote_code: bool
    ) -> NeuronEncoderConfig:
        model = build_model(source, config, trust_remote_code=trust_remote_code)
        _, row = find_architecture(source.config.model_type)
        inputs = model_inputs(model, config.task, row, config.torch_dtype)
        return config.resolve(
            default_sizes(inputs, source.config, source.folder),
            largest_sizes(inputs, source.config, row),
            model=f"a {source.config.model_type} model for {config.task}",
        )

    def plan(self, source: ModelSource, config: NeuronEncoderConfig, *, trust_remote_code: bool) -> Plan:
        choice, row = find_architecture(source.config.model_type)
        model = build_model(source, config, trust_remote_code=trust_remote_code)
        shards = split_empty(model, config, ends=False)
        inputs = model_inputs(model, config.task, row, config.torch_dtype)
        options = call_options(model, attentions=config.output_attentions, hidden_states=config.output_hidden_states)
        patches = [patch for patch in row.patches if patch.applies(source.config, config.task)]
        forward = Forward(model, [spec.name for spec in inputs], options, patches).eval()
        signature = _signature(forward, inputs, config, row)
        names = [name for name, _ in forward.named_parameters()] + [name for name, _ in persistent_buffers(forward)]
        return Plan(
            choice=choice,
            captures=[
                functools.partial(forward.capture, name, sizes, _specs(inputs, sizes))
                for name, sizes in config.graphs().items()
            ],
            weight_sources={name: (name.removeprefix(f"{MODEL}."),) for name in names},
            facts={
                "signature": Signature(roles={"forward": signature}).to_dict(),
                "patches": [patch.reason for patch in patches],
            }
            | shard_facts(shards),
        )

    def prepare_reference(self, reference: PreTrainedModel, config: NeuronEncoderConfig) -> Any:
        return with_attentions(reference) if config.output_attentions else reference

    def scenarios(
        self, recorder: Recorder, reference: PreTrainedModel, metadata: Mapping[str, Any], config: NeuronEncoderConfig
    ) -> Iterable[Scenario]:
        signature = self.signature(recorder.program, metadata, reference.config)["forward"]
        return encoder_scenarios(recorder, signature, reference, config)

    def problems(self, program: Program, metadata: Mapping[str, Any], config: NeuronEncoderConfig) -> list[str]:
        if "signature" not in metadata:
            return ["its metadata has no signature"]
        inputs = Signature.from_dict(metadata["signature"])["forward"].inputs
        if absent := sorted({axis for spec in inputs for axis in spec.axes if axis not in config.axes}):
            return [f"it has the axes {', '.join(absent)}, of which neuron_config.json has no size"]
        graphs = config.graphs()
        return other_graphs(program, graphs) or [
            f"graph {name} takes {', '.join(map(str, program.graphs[name].inputs.values()))}, not what {sizes} makes"
            for name, sizes in graphs.items()
            if program.graphs[name].inputs != _specs(inputs, sizes)
        ]


def build_model(source: ModelSource, config: NeuronEncoderConfig, *, trust_remote_code: bool) -> Any:
    """Build the model of a task without weights."""
    # Fused attention does not return its weights.
    attention = "eager" if config.output_attentions else None
    return empty_model(source, config, attention=attention, trust_remote_code=trust_remote_code)


def _specs(inputs: tuple[Input, ...], sizes: Sizes) -> dict[str, TensorSpec]:
    return {s.name: TensorSpec(shape=tuple(sizes[axis] for axis in s.axes), dtype=s.dtype) for s in inputs}


def _signature(
    forward: Forward, inputs: tuple[Input, ...], config: NeuronEncoderConfig, row: Architecture
) -> RoleSignature:
    """Measure which dimensions of the results follow which axes, by changing the axes.

    All are changed at once, which is fast; where that does not tell which one a dimension follows, one after the other.
    """
    sizes = next(iter(config.graphs().values()))
    padded, exact = _padding(inputs, row, config.task)
    window, stride = frame_rule(forward.model.config)
    rules = {axis: [(1, 1)] for axis in config.axes}
    if window > 1 and "audio_sequence_length" in rules:
        rules["audio_sequence_length"].append((window, stride))
    axes = [axis for axis in config.axes if axis in BATCH_AXES or axis in padded]
    others = {axis: _other_size(sizes[axis], rules[axis][-1], axis) for axis in axes}

    def changes(*axes: str) -> Iterator[tuple[str, str, int, int, list[OutputAxis]]]:
        """Of each dimension that changes with some axes: the first axis, the result, both sizes, and what fits them."""
        after = _measured(forward, inputs, sizes | {axis: others[axis] for axis in axes})
        for name, shape in before.items():
            for dim, (old, new) in enumerate(zip(shape, after[name], strict=True)):
                candidates = [OutputAxis(dim=dim, axis=a, window=w, stride=s) for a in axes for w, s in rules[a]]
                fits = [c for c in candidates if (c.size(sizes[c.axis]), c.size(others[c.axis])) == (old, new)]
                if old != new:
                    yield axes[0], name, old, new, fits

    with on_fakes(forward):
        before = _measured(forward, inputs, sizes)
        for axis in axes if row.has_fewer_frames else ():
            lengths = functools.partial(_lengths_along, forward, inputs, sizes, axis)
            rules[axis] += step_rules(lengths, sizes[axis], others[axis])
        found = list(changes(*axes))
        if any(len(fits) != 1 for *_, fits in found):
            found = [change for axis in axes for change in changes(axis)]
    outputs: dict[str, list[OutputAxis]] = {name: [] for name in before}
    for axis, name, old, new, fits in found:
        outputs[name] += fits[:1]
        if not fits:
            exact[axis] = f"{name} has {old} for {axis}={sizes[axis]} and {new} for {others[axis]}"
            padded.pop(axis, None)
    return RoleSignature(
        inputs=inputs,
        outputs={name: tuple(axis for axis in axes if axis.axis not in exact) for name, axes in outputs.items()},
        padded=padded,
        exact=exact,
        output_type=forward.result_type,
        smallest={axis: largest for axis in config.axes if (largest := max(w for w, _ in rules[axis])) > 1},
        ignored=ignored_inputs(forward.model, row),
    )


def _other_size(size: int, rule: tuple[int, int], axis: str) -> int:
    """A size that shows what follows the axis, in steps too: half of it; a longer row may have no positions."""
    window, stride = rule
    if axis in ("height", "width"):
        return size - 1 if size > 1 else size + 1  # results of a padded image are as long as those of its processor
    if axis in BATCH_AXES or size // 2 < window:
        return size + stride
    return size // 2


def _lengths_along(forward: Forward, inputs: tuple[Input, ...], sizes: Sizes, axis: str, size: int) -> tuple[int, ...]:
    """Every dimension of every result, where an axis has a size."""
    shapes = _measured(forward, inputs, sizes | {axis: size})
    return tuple(length for shape in shapes.values() for length in shape)


def _padding(inputs: tuple[Input, ...], row: Architecture, task: str) -> tuple[dict[str, str], dict[str, str]]:
    """Axes that may be padded, and those that may not, each with the reason."""
    names = {spec.name for spec in inputs}
    reason = row.exact if not row.exact_tasks or task in row.exact_tasks else None
    padded, exact = {}, {}
    for axis in dict.fromkeys(axis for spec in inputs for axis in spec.axes if axis not in BATCH_AXES):
        mask = "pixel_mask" if axis in ("height", "width") else "attention_mask"
        if axis == "num_choices":
            padded[axis] = "each choice is judged alone"
        elif axis in ("num_channels", "feature_size"):
            exact[axis] = "it is a property of the model"
        elif reason is not None or mask not in names:
            exact[axis] = reason or f"the model takes no {mask}"
        else:
            padded[axis] = f"{mask} tells padding"
    return padded, exact


def _measured(forward: Forward, inputs: tuple[Input, ...], sizes: Sizes) -> dict[str, tuple[int, ...]]:
    try:
        return forward.measure(_specs(inputs, sizes))
    except NeuronError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, NotImplementedError) as error:
        shown = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
        raise capture_error(forward.model, f"forward with {shown}", error) from error


KIND = EncoderKind()
