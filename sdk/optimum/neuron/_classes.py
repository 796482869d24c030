"""Model classes under the rules of Optimum Neuron, each a subclass of the class of its name in `optimum_neuron`.

    NeuronModelForCausalLM = door_class(optimum_neuron.NeuronModelForCausalLM)

They ignore options that a model does not have, export a checkpoint only with `export=True`, and return what Optimum
Neuron's classes return. An object of the original class counts as an instance too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from optimum.neuron._sequences import SequenceCalls, of_last_token

import optimum_neuron
from optimum_neuron.errors import UnsupportedAttributeError
from optimum_neuron.options.peer_attributes import upstream_rules


class DoorType(type):
    """The class of these classes: objects of the original class are instances of them."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _original(cls)) if "original" in vars(cls) else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _original(cls)) if "original" in vars(cls) else super().__subclasscheck__(subclass)


def _original(cls: type) -> type:
    return vars(cls)["original"]


_TYPED = ("gemma3",)
"""Architectures whose processors mark the tokens of images: those of one image see each other by the marks."""


class Door:
    """What every class changes."""

    original: ClassVar[Any]
    """The class in `optimum_neuron`."""

    @classmethod
    def from_pretrained(cls, model_id: str | Path, *args: Any, **options: Any) -> Any:
        """Load an exported model, or export a checkpoint with `export=True`; see the class in `optimum_neuron`."""
        with upstream_rules():
            return super().from_pretrained(model_id, *args, **options)

    @classmethod
    def _wrap(cls, prepared: Any) -> Any:
        if "original" not in vars(cls):  # a subclass of the user
            return super()._wrap(prepared)
        return under_rules(cls.original._wrap(prepared))


class TwoStepDoor(Door):
    """Decoders, which are exported in two steps too."""

    @classmethod
    def get_neuron_config(cls, model_name_or_path: str | Path, *args: Any, **options: Any) -> Any:
        """Return the configuration of an export."""
        with upstream_rules():
            return super().get_neuron_config(model_name_or_path, *args, **options)


class TracedDoor(Door):
    """Single-pass models."""

    _script: Any = None

    @property
    def model(self) -> torch.jit.ScriptModule:
        """The compiled program as a ScriptModule, which takes tensors of compiled shapes and returns a tuple."""
        if self._script is None:
            from optimum_neuron.tracing import script_of

            self._script = script_of(self)
        return self._script

    def replace_weights(self, weights: Any) -> None:
        """Replace the weights by others of the same architecture, without compiling."""
        super().replace_weights(weights)
        self._script = None


class EncoderDecoderDoor(Door):
    """Models that read a source and write a target."""


class EmbeddingDoor(TwoStepDoor, TracedDoor):
    """Decoders for embeddings."""

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **inputs: Any,
    ) -> torch.Tensor:
        """Return the hidden state of the last token of each text [batch, 1, hidden], not scaled.

        Args:
            input_ids: token IDs [batch, tokens].
            attention_mask: 1 for real tokens; None: all are real.
            position_ids: not needed: positions are counted.
            **inputs: further features of a tokenizer.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        features = {"input_ids": input_ids, "attention_mask": mask, **inputs}
        return of_last_token(self.original.forward(self, features).token_embeddings, mask)

    def _embedded(self, texts: Sequence[Any], num_skipped: int = 0) -> torch.Tensor:
        features = {**self.tokenize(texts), "prompt_length": num_skipped}
        return self.original.forward(self, features).sentence_embedding


class DecoderDoor(SequenceCalls, TwoStepDoor):
    """Decoders that generate."""

    @property
    def context_encoding_model(self) -> dict[str, Any]:
        """Graphs that read a prompt in one piece, by name, each with its inputs.

        Raises:
            UnsupportedAttributeError: prompts are read in chunks.
        """
        if self.neuron_config.prefill_chunk_size:
            raise _absent_graphs("context_encoding_model", "chunked_prefill_model")
        return self._graphs("prefill")

    @property
    def chunked_prefill_model(self) -> dict[str, Any]:
        """Graphs that read a chunk of a prompt, by name, each with its inputs.

        Raises:
            UnsupportedAttributeError: prompts are read in one piece.
        """
        if not self.neuron_config.prefill_chunk_size:
            raise _absent_graphs("chunked_prefill_model", "context_encoding_model")
        return self._graphs("prefill", "extend")

    @property
    def token_generation_model(self) -> dict[str, Any]:
        """Graphs of one step of generation, by name, each with its inputs."""
        return self._graphs("decode")

    def _graphs(self, *roles: str) -> dict[str, Any]:
        graphs = self.loaded.program.graphs.items()
        return {name: dict(graph.inputs) for name, graph in graphs if graph.role in roles}

    def _complete(self, args: Sequence[Any], inputs: dict[str, Any]) -> dict[str, Any]:
        """Inputs of a call, with those that Optimum Neuron's classes do not take."""
        return inputs


class ImageTextDoor(DecoderDoor):
    """Decoders that read images too."""

    def _complete(self, args: Sequence[Any], inputs: dict[str, Any]) -> dict[str, Any]:
        has_images = any(inputs.get(name) is not None for name in ("pixel_values", "mm_encoder_outputs"))
        if self.config.model_type not in _TYPED or not has_images or inputs.get("token_type_ids") is not None:
            return inputs
        ids = args[0] if args else inputs["input_ids"]
        return {**inputs, "token_type_ids": (ids == self.config.image_token_id).long()}


def _absent_graphs(name: str, other: str) -> UnsupportedAttributeError:
    message = f"This model has no {name}: prompts are read by the graphs of {other}."
    return UnsupportedAttributeError(message, hint="Export with another prefill_chunk_size.", attribute=name)


def _door_of(original: type) -> type:
    """What a class changes, by its kind."""
    if issubclass(original, optimum_neuron.NeuronModelForEmbedding):
        return EmbeddingDoor
    if issubclass(original, optimum_neuron.NeuronModelForImageTextToText):
        return ImageTextDoor
    if issubclass(original, optimum_neuron.NeuronModelForCausalLM):
        return DecoderDoor
    if issubclass(original, (optimum_neuron.NeuronModelForSeq2SeqLM, optimum_neuron.NeuronModelForSpeechSeq2Seq)):
        return EncoderDecoderDoor
    return TracedDoor if issubclass(original, optimum_neuron.NeuronTracedModel) else Door


@functools.cache
def door_class(original: type) -> type:
    """Return the class under the rules of Optimum Neuron."""
    door = _door_of(original)
    names = {"original": original, "__doc__": original.__doc__, "__module__": "optimum.neuron"}
    made = DoorType(original.__name__, (door, original), names)
    if issubclass(door, DecoderDoor):
        made.forward = _with_sequences(original.forward)
    if door in (TracedDoor, EncoderDecoderDoor):
        made.forward = _under_upstream_rules(original.forward)
    if door is EncoderDecoderDoor:
        made.generate = _under_upstream_rules(original.generate)
    return made


def _under_upstream_rules(method: Any) -> Any:
    """A method that ignores requests for results of layers that the model was exported without."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **inputs: Any) -> Any:
        with upstream_rules():
            return method(self, *args, **inputs)

    return call


def _with_sequences(forward: Any) -> Any:
    """The forward of a decoder that takes numbers of sequences too; transformers reads its signature."""

    @functools.wraps(forward)
    def call(self: Any, *args: Any, seq_ids: Any = None, sampling_params: Any = None, **inputs: Any) -> Any:
        inputs = self._complete(args, inputs)
        if seq_ids is None and sampling_params is None:
            return forward(self, *args, **inputs)
        return self._next(*args, seq_ids=seq_ids, sampling_params=sampling_params, **inputs)

    signature = inspect.signature(forward)
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(name, kind, default=None) for name in ("seq_ids", "sampling_params")]
    parameters = list(signature.parameters.values())
    rest = [one for one in parameters if one.kind is inspect.Parameter.VAR_KEYWORD]
    call.__signature__ = signature.replace(parameters=[*(one for one in parameters if one not in rest), *more, *rest])
    return call


def __getattr__(name: str) -> type:
    if name.startswith("_"):
        raise AttributeError(name)
    return door_class(getattr(optimum_neuron, name))


def under_rules(loaded: Any, door: Callable[[type], type] = door_class) -> Any:
    """Let a model or a pipeline that is loaded follow the rules, and return it."""
    if not isinstance(type(loaded), DoorType):
        loaded.__class__ = door(type(loaded))
    return loaded
