"""How a stock pipeline calls its models: it runs once with models that note their calls and return zeros.

The pipeline's own code runs on real tensors, so schedulers and processors work as they are; a model's results have the
shapes that its code gives on fake tensors. Two runs with different numbers of prompts show which dimensions are rows.

    calls = note_calls(pipe, config)["unet"]
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import inspect
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ...base.foreign import module_facts, pipeline_facts
from ...base.wording import first_line
from ...compiler import capture_error, fakes_of, quiet, swapped
from ...engine import Call, Leaf, flatten, unflatten
from ...errors import CaptureError, ConfigError, NeuronError
from ...sources.pipelines import compiled_models, unchecked
from ...upstream.torch import FakeTensorMode
from .component import part_name, redirected
from .configuration import NeuronDiffusionConfig

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

NUM_STEPS = 4
"""Denoising steps of a dry run: image-to-image leaves out the first ones."""
STRENGTH = 0.75
"""Part of the steps that image-to-image runs."""
_CODECS = ("encode", "decode")
"""Methods of autoencoders."""
_HINTS: dict[type[Exception], str] = {
    ValueError: "Pass sizes that the pipeline takes.",
    TypeError: "An export passes prompts and images only: a pipeline that needs other arguments is not supported.",
    AttributeError: "Check that the folder has all components of this class.",
}
"""What to do about each kind of error in a dry run."""
_OTHER_HINT = "Pass other sizes, or check that the stock pipeline runs with these."
SEED = 0
"""Seed of a dry run, and of the pictures that validation compares."""


class _WithoutFloat64(TorchFunctionMode):
    """Computes in float32 where a model has float64, as diffusers does on devices without it; NeuronCores are such."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        def single(value: object) -> Any:
            return torch.float32 if value is torch.float64 else value

        function = torch.Tensor.float if func is torch.Tensor.double else func
        return function(*map(single, args), **{name: single(value) for name, value in (kwargs or {}).items()})


class Entry(nn.Module):
    """A method of a model as a function of tensors, to be captured; the names of its results are in `names`."""

    def __init__(self, model: nn.Module, method: str, arguments: object) -> None:
        super().__init__()
        self.model = model
        self._method, self._arguments = method, arguments
        self.result: Any = None
        self.names: tuple[str, ...] = ()

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of the result.

        Pipelines of SDXL move their autoencoder to float32 before it encodes (`force_upcast`, for the small range of
        float16). Compiled, it keeps its dtype, and so its input is rounded to that.
        """
        if self._method in _CODECS:
            dtype = next(self.model.parameters()).dtype
            tensors = tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors)
        with _WithoutFloat64():
            output = getattr(self.model, self._method)(**unflatten(self._arguments, tensors))
        self.result, results = flatten(output)
        self.names = tuple(results)
        return list(results.values())


class _Model:
    """A model as a dry run calls it: its fakes, and the calls whose results are known."""

    def __init__(self, model: nn.Module) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.fakes, self.calls = fakes_of(model, self.mode), dict[Any, Call]()


_MODELS: weakref.WeakKeyDictionary[nn.Module, _Model] = weakref.WeakKeyDictionary()
"""Another dry run of a model, with other steps or sizes, makes many calls again."""


class CallRecorder:
    """Stands for a model in a dry run."""

    def __init__(self, model: nn.Module, name: str, order: list[str]) -> None:
        self._model, self._name, self._order = model, name, order
        self._known: dict[Any, Call] = {}
        self._counts: collections.Counter[Any] = collections.Counter()

    @property
    def counts(self) -> list[int]:
        """How often each of the calls was made."""
        return [self._counts[key] for key in self._known]

    @property
    def calls(self) -> list[Call]:
        """The calls, without rows, each once: a pipeline may encode one picture after another."""
        return list(self._known.values())

    def __call__(self, method: str, arguments: dict[str, Any]) -> Any:
        """Note a call, and return zeros of the shapes of its results."""
        tree, tensors = flatten(arguments)
        inputs = tuple(
            Leaf(name=name, dtype=_dtype(name, tensor), shape=tuple(tensor.shape)) for name, tensor in tensors.items()
        )
        key = (method, repr(tree), inputs)
        if key not in self._known:
            if self._model not in _MODELS:
                _MODELS[self._model] = _Model(self._model)
            calls = _MODELS[self._model].calls
            if key not in calls:
                calls[key] = self._traced(method, tree, inputs)
            self._known[key] = calls[key]
        self._counts[key] += 1
        self._order.append(part_name(self._name, method))
        return unflatten(self._known[key].result, _zeros(self._known[key].outputs))

    def ask_for_hidden_states(self) -> None:
        """Make the calls again with and without hidden states, and with a mask of tokens, as Compel does."""
        for noted in self.calls:
            plain = unflatten(noted.arguments, _zeros(noted.inputs))
            plain.pop("output_hidden_states", None)
            masked = {"attention_mask": torch.ones_like(plain["input_ids"]), **plain}
            for arguments in (masked, plain):
                self(noted.method, arguments)
                self(noted.method, {**arguments, "output_hidden_states": True})

    def _traced(self, method: str, tree: object, inputs: tuple[Leaf, ...]) -> Call:
        entry, model = Entry(self._model, method, tree), _MODELS[self._model]
        with swapped(model.fakes), torch.no_grad(), quiet(), model.mode:
            try:
                results = entry(*_zeros(inputs))
            except (RuntimeError, NotImplementedError) as error:
                raise capture_error(self._model, f"{self._name}.{method}", error) from error
        outputs = tuple(
            Leaf(name=name, dtype=_plain(tensor.dtype), shape=tuple(map(int, tensor.shape)))
            for name, tensor in zip(entry.names, results, strict=True)
        )
        return Call(graph=method, method=method, arguments=tree, inputs=inputs, result=entry.result, outputs=outputs)


def _zeros(leaves: Iterable[Leaf]) -> list[torch.Tensor]:
    return [torch.zeros(leaf.shape, dtype=getattr(torch, leaf.dtype)) for leaf in leaves]


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(name: str, tensor: torch.Tensor) -> str:
    """The dtype of an input: schedulers have steps as integers or as floating-point numbers."""
    is_step = name in ("timestep", "timesteps")
    return "float32" if is_step or tensor.dtype == torch.float64 else _plain(tensor.dtype)


def note_calls(pipe: DiffusionPipeline, config: NeuronDiffusionConfig, **more: object) -> dict[str, list[Call]]:
    """Return the calls of each program of a pipeline whose models have no weights, once each.

    The encoder of a VAE is called too, so that an export of text-to-image serves image-to-image and inpainting.
    """
    calls: dict[str, list[Call]] = {}
    for height, width in config.resolutions():
        found_calls = _calls_of(pipe, config, height, width, {"strength": STRENGTH, **more}, encodes=True)
        for part, found in found_calls.items():
            known = calls.setdefault(part, [])
            known += [call for call, _ in found if call not in known]
    return {part: _named(found) for part, found in calls.items()}


def count_calls(
    pipe: DiffusionPipeline, config: NeuronDiffusionConfig, *, num_steps: int | None, **more: object
) -> dict[str, list[tuple[Call, int]]]:
    """Return the calls of each program of a pipeline for its first resolution, and how often each is made.

    Args:
        pipe: stock pipeline whose models have no weights.
        num_steps: denoising steps; None: the pipeline's default.
    """
    height, width = config.resolutions()[0]
    counted = _calls_of(pipe, config, height, width, more, num_steps=num_steps)
    named = {part: _named([call for call, _ in found]) for part, found in counted.items()}
    return {part: [(call, num) for call, (_, num) in zip(named[part], counted[part], strict=True)] for part in counted}


def _calls_of(
    pipe: DiffusionPipeline,
    config: NeuronDiffusionConfig,
    height: int | None,
    width: int | None,
    more: Mapping[str, Any],
    *,
    num_steps: int | None = NUM_STEPS,
    encodes: bool = False,
) -> dict[str, list[tuple[Call, int]]]:
    """The calls of each program for one resolution, and how often each is made; programs are in the order of calls."""
    models, runs = compiled_models(pipe), []
    order: list[str] = []
    for batch_size in (config.batch_size, config.batch_size + 1):
        recorders = {name: CallRecorder(model, name, order) for name, model in models.items()}
        arguments = example_arguments(
            pipe, config, batch_size=batch_size, height=height, width=width, num_steps=num_steps, more=more
        )
        with in_place(pipe, {name: redirected(models[name], each) for name, each in recorders.items()}):
            _run(pipe, arguments)
        if encodes and height and width and "vae" in models:
            _encode(recorders["vae"], models["vae"], (batch_size, height, width))
        for name, recorder in recorders.items():
            if encodes and config.output_hidden_states and name.startswith("text_encoder"):
                recorder.ask_for_hidden_states()
        runs.append(recorders)
    calls: dict[str, list[tuple[Call, int]]] = {part: [] for part in dict.fromkeys(order)}
    for name in models:
        pairs = zip(_with_rows(name, runs[0][name].calls, runs[1][name].calls), runs[0][name].counts, strict=True)
        for call, count in pairs:
            calls[part_name(name, call.method)].append((call, count))
    return calls


def _encode(recorder: CallRecorder, vae: Any, size: tuple[int, int, int]) -> None:
    """Encode pictures as image-to-image and inpainting do, unless the pipeline has done it itself."""
    is_plain = any(base.__name__ == "AutoencoderKL" for base in type(vae).__mro__)
    if is_plain and all(call.method != "encode" for call in recorder.calls):
        num, height, width = size
        recorder("encode", {"x": torch.zeros(num, vae.config.in_channels, height, width)})


@contextlib.contextmanager
def in_place(pipe: DiffusionPipeline, models: Mapping[str, Any]) -> Iterator[None]:
    """Let a pipeline have other models and no safety checker, and show no progress, for a while."""
    own = {name: getattr(pipe, name) for name in models}
    progress = dict(pipeline_facts(pipe)._progress_bar_config or {})
    try:
        for name, model in models.items():
            setattr(pipe, name, model)
        pipe.set_progress_bar_config(disable=True)
        with unchecked(pipe):
            yield
    finally:
        for name, model in own.items():
            setattr(pipe, name, model)
        pipe.set_progress_bar_config(**progress)


def _run(pipe: DiffusionPipeline, arguments: Mapping[str, Any]) -> Any:
    try:
        return pipe(**arguments)
    except NeuronError:
        raise
    except (ValueError, TypeError, RuntimeError, LookupError, AttributeError, NotImplementedError) as error:
        shown = ", ".join(f"{name}={value}" for name, value in arguments.items() if isinstance(value, (int, float)))
        name = type(pipe).__name__
        message = f"A {name} cannot be called with {shown}: {first_line(error).rstrip('.')}."
        raise ConfigError(message, hint=_HINTS.get(type(error), _OTHER_HINT), pipeline=name) from error


def exact_sizes(height: int | None, width: int | None) -> dict[str, Any]:
    """Return arguments with which pipelines take a size as it is, and do not choose the nearest of a table."""
    sizes: dict[str, Any] = {"use_resolution_binning": False, "_auto_resize": False}
    return sizes | ({"max_area": height * width} if height and width else {})


def example_arguments(
    pipe: DiffusionPipeline,
    config: NeuronDiffusionConfig,
    *,
    batch_size: int,
    height: int | None,
    width: int | None,
    num_steps: int | None = NUM_STEPS,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return arguments of a pipeline's call, as far as it has them, for pictures of a size; `more` wins."""
    names = inspect.signature(type(pipe).__call__).parameters
    picture: Any = None
    if names.keys() & {"image", "control_image", "mask_image"}:
        picture = [_picture(height or 64, width or 64)] * batch_size
        picture = picture[0] if batch_size == 1 else picture
    num_nets = len(module_facts(pipeline_facts(pipe).controlnet).nets or ())
    control = "control_image" if "control_image" in names else "image"
    candidates = {
        "prompt": ["a picture"] * batch_size if batch_size > 1 else "a picture",
        "batch_size": batch_size,
        "image": picture,
        "control_image": picture,
        "mask_image": _mask(height or 64, width or 64) if picture is not None else None,
        "height": height,
        "width": width,
        "num_frames": config.num_frames,
        "num_images_per_prompt": config.num_images_per_prompt,
        "max_sequence_length": config.sequence_length,
        **exact_sizes(height, width),
        "guidance_scale": config.guidance_scale,
        "num_inference_steps": num_steps,
        "clean_caption": False,  # it needs another package, and changes no shape
        "generator": torch.Generator().manual_seed(SEED),
        "output_type": "np",
    }
    if num_nets:
        candidates[control] = [_picture(height or 64, width or 64)] * num_nets  # the same for every prompt
    candidates |= more or {}
    return {name: value for name, value in candidates.items() if name in names and value is not None}


def _picture(height: int, width: int) -> Any:
    """A picture with a gradient in each color."""
    from PIL import Image

    rows, columns = torch.linspace(0, 255, height)[:, None], torch.linspace(0, 255, width)[None]
    colors = torch.stack(torch.broadcast_tensors(rows, columns, (rows + columns) / 2), dim=-1)
    return Image.fromarray(colors.to(torch.uint8).numpy())


def _mask(height: int, width: int) -> Any:
    """A mask of the right half of a picture."""
    from PIL import Image

    mask = torch.zeros(height, width, dtype=torch.uint8)
    mask[:, width // 2 :] = 255
    return Image.fromarray(mask.numpy())


def _with_rows(name: str, one: list[Call], other: list[Call]) -> Iterator[Call]:
    """Compare the calls of two runs: a dimension that grew with the number of prompts is one of rows."""
    shapes = [[(call.method, repr(call.arguments), len(call.outputs)) for call in run] for run in (one, other)]
    if shapes[0] != shapes[1]:
        message = f"The calls of {name} depend on the number of prompts: {len(one)} with fewer, {len(other)} with more."
        raise CaptureError(message, hint="Pass another batch_size.", component=name)
    for call, larger in zip(one, other, strict=True):
        inputs, outputs = _leaves(name, call.inputs, larger.inputs), _leaves(name, call.outputs, larger.outputs)
        yield dataclasses.replace(call, inputs=inputs, outputs=outputs)


def _leaves(name: str, one: tuple[Leaf, ...], other: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
    leaves = []
    for leaf, larger in zip(one, other, strict=True):
        grown = [dim for dim, (size, more) in enumerate(zip(leaf.shape, larger.shape, strict=True)) if size != more]
        if len(grown) > 1:
            message = f"{leaf.name} of {name} grows in {len(grown)} dimensions with the number of prompts."
            raise CaptureError(message, hint="Pass another batch_size.", component=name)
        leaves.append(dataclasses.replace(leaf, rows=grown[0] if grown else None))
    return tuple(leaves)


def _named(calls: list[Call]) -> list[Call]:
    """Give each entry point its own name."""
    if len(calls) == 1:
        return calls
    return [dataclasses.replace(call, graph=f"{call.graph}_{index}") for index, call in enumerate(calls)]
