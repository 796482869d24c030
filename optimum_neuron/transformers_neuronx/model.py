"""Decoders with the methods of `transformers_neuronx`: `to_neuron`, `sample`, `forward` at a position, `save`, `load`.

`from_pretrained` reads a configuration only; `to_neuron` compiles or loads. Between them, `load` names compiled
artifacts, and `enable_speculative_decoder` asks for further graphs. A class checks the family
of the checkpoint.

    model = LlamaForSampling.from_pretrained("tiny_llama", batch_size=1, n_positions=128, tp_degree=2, amp="f32")
    model.to_neuron()
    tokens = model.sample(input_ids, sequence_length=128, top_k=1)
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from transformers import PretrainedConfig

from ..errors import ConfigError, ModelError, NotExportedError
from ..modeling import NeuronModelForCausalLM, SequenceSlots, require_heads, require_quantization, require_rows
from ..options.option import check_known
from ..options.sizes import sizes_up_to
from ..options.spelling import spelled
from ..sources import load_source
from .checks import (
    check_kinds,
    check_unroll,
    check_window,
    end_tokens,
    left_padding,
    length_of,
    length_with_room,
    position,
    require_columns,
    require_ids,
    sizes,
)
from .config import GenerationConfig, NeuronConfig
from .options import KEYWORDS, export_options
from .placing import placed, require_eagle_draft
from .positions import Positions, row_numbers
from .sampling import Sampling, run

logger = logging.getLogger(__name__)


class NeuronModelBase:
    """A decoder that `to_neuron` compiles."""

    model_types: ClassVar[tuple[str, ...]] = ()
    """Architectures of the class; empty: any."""
    defaults: ClassVar[dict[str, Any]] = {"amp": "f32"}
    """Keywords of `from_pretrained` with another default than `_DEFAULTS`."""

    @spelled(KEYWORDS)
    def __init__(self, config: PretrainedConfig, *, checkpoint: str | Path | None = None, **options: object) -> None:
        known = [*_DEFAULTS, *self.defaults, *_UNROLLED, *_WITHOUT_EFFECT]
        check_known(options, known, what=type(self).__name__, listed="docs/transformers_neuronx.md")
        values = {**_DEFAULTS, **self.defaults, **options}
        if self.model_types and config.model_type not in self.model_types:
            raise ModelError(
                f"{type(self).__name__} is for {', '.join(self.model_types)}, not for {config.model_type}.",
                hint="Use the class of this architecture, or NeuronAutoModelForCausalLM.",
                model_type=config.model_type,
            )
        check_unroll(values, config)
        check_kinds(values)
        if unused := [name for name in _WITHOUT_EFFECT if options.get(name)]:
            logger.info("Without effect on a simulated core: %s.", ", ".join(unused))
        require_heads(config, values["tp_degree"])
        self.checkpoint = checkpoint
        self.neuron_config: NeuronConfig = values["neuron_config"] or NeuronConfig()
        self.n_positions, self.batch_size = length_of(values, config, "n_positions" in options), values["batch_size"]
        self.config = config
        self.tp_degree, self.amp = values["tp_degree"], values["amp"]
        self._options = export_options(
            amp=values["amp"],
            batch_size=values["batch_size"],
            n_positions=self.n_positions,
            context_length_estimate=values["context_length_estimate"],
            tp_degree=values["tp_degree"],
            neuron_config=self.neuron_config,
            config=config,
        )
        require_quantization(config, self._options.get("quantization"))
        self._artifacts: Path | None = None
        self._model: NeuronModelForCausalLM | None = None
        self._generation = self.neuron_config.on_device_generation
        if (sampling := self.generation_sampling) is not None:
            sampling.require_rows(self.num_rows)

    @classmethod
    def from_pretrained(cls, pretrained_model_path: str | Path, *model_args: object, **options: object) -> Self:
        """Read the configuration of a checkpoint; weights are read by `to_neuron`.

        Args:
            pretrained_model_path: folder, or Hub model ID.
            *model_args: none; options have names.
            **options: `batch_size, n_positions, context_length_estimate, amp, tp_degree, neuron_config`; a list of
                sizes compiles several buckets. `unroll` and `context_unroll` are checked and have no effect.

        Raises:
            ConfigError: an option is unknown, out of range, or not possible on an instance.
            ModelError: the checkpoint is of another family.
        """
        source = load_source(pretrained_model_path, with_weights=False)
        return cls(source.config, *model_args, checkpoint=pretrained_model_path, **options)

    def load(self, directory: str | Path) -> None:
        """Name the folder of compiled artifacts that `to_neuron` loads in place of a compile.

        Raises:
            NotExportedError: there is no such folder.
        """
        if not Path(directory).is_dir():
            message = f"Did not find directory: {directory}."
            raise NotExportedError(message, hint="Name a folder of save().", folder=str(directory))
        self._artifacts = Path(directory)

    @spelled(KEYWORDS)
    def to_neuron(self) -> None:
        """Compile the decoder, or load it, and place it on simulated cores."""
        if self.checkpoint is None and self._artifacts is None:
            message = f"This {type(self).__name__} was made from a configuration, without weights."
            raise ModelError(message, hint=f"Use {type(self).__name__}.from_pretrained.", model=type(self).__name__)
        if self.neuron_config.is_eagle_draft and self.checkpoint is not None:
            require_eagle_draft(self.checkpoint, self.config)
            logger.info("An EAGLE draft is compiled with its target, by FusedSpeculativeDecoder.to_neuron().")
            return
        self._model = placed(self.checkpoint, self._artifacts, self.config, self._options)
        for name in ("_positions", "_slots"):
            self.__dict__.pop(name, None)

    def compile(self, parallel_degree: int | None = None) -> None:
        """Compile, as `to_neuron` does; `setup` then has nothing left to do."""
        if self._model is None:
            self.to_neuron()

    cpu_compile = compile

    def setup(self) -> None:
        """Place the model on cores."""
        self.compile()

    @property
    def num_rows(self) -> int:
        """Rows of a batch."""
        return int(self._options["batch_size"])

    @property
    def num_cached(self) -> int:
        """Columns that are in the cache."""
        return self._positions.num_columns

    def is_compiled(self) -> bool:
        """Return whether the model can be called."""
        return self._model is not None

    @property
    def compiled(self) -> NeuronModelForCausalLM:
        """The compiled decoder, for everything that these classes do not have."""
        if self._model is None:
            message, of = f"This {type(self).__name__} is not compiled.", ""
            if self.neuron_config.is_eagle_draft:
                of = " of its FusedSpeculativeDecoder"
            raise ConfigError(message, hint=f"Call to_neuron(){of} first.", model=type(self).__name__)
        return self._model

    @functools.cached_property
    def _positions(self) -> Positions:
        """The sequences in the cache of the compiled model."""
        return Positions(self.compiled)

    @functools.cached_property
    def _slots(self) -> SequenceSlots:
        """The sequences of continuous batching."""
        return SequenceSlots(self.compiled, self.compiled.neuron_config.batch_size)

    def save(self, directory: str | Path, sharded_weights: bool = False) -> None:
        """Write the compiled decoder and its weights into a folder, for `load`.

        Args:
            directory: the folder; it is made if needed.
            sharded_weights: has no effect: the folder has the weights in any case, and `from_pretrained` reads it too.

        Raises:
            FileExistsError: there is a file of that name.
            ConfigError: the model was not compiled.
        """
        if sharded_weights:
            logger.info("Without effect on a simulated core: sharded_weights.")
        if Path(directory).is_file():
            raise FileExistsError(f"Artifacts should be saved to a directory. Found existing file: {directory}")
        self.compiled.save_pretrained(directory)

    # Running.

    def reset(self) -> None:
        """Forget the sequences in the cache."""
        self._positions.reset()
        self._slots.reset()

    def reorder_cache(self, reorder_ids: Sequence[int] | torch.Tensor) -> None:
        """Let row i continue from the former row `reorder_ids[i]`."""
        self._positions.reorder(torch.as_tensor(reorder_ids))

    def setup_reorder_cache(self) -> None:
        """Do nothing: the cache can always be reordered."""

    def enable_speculative_decoder(
        self, speculation_length: int | Sequence[int], batch_sizes: Sequence[int] | None = None
    ) -> None:
        """Compile `speculative_forward` for up to so many tokens; call it before `to_neuron`."""
        lengths = sizes("speculation_length", speculation_length)
        self._before_compile("enable_speculative_decoder")
        self._options |= {"speculation": True, "extend_length": max(lengths) + 1}  # the newest token too

    def compile_speculative_decoder(self, speculation_length: int) -> None:
        """Compile the model so that it can check so many tokens: again, if it is compiled and cannot."""
        if self._options.get("extend_length", 0) > speculation_length:
            self.compile()
            return
        if self._model is not None:
            self._model.close()
            self._model = None
        self.enable_speculative_decoder(speculation_length)
        self.to_neuron()

    def enable_window_context_decoder(self, window_context_length: int, unroll: int | None = None) -> None:
        """Read prompts in windows of so many tokens; call it before `to_neuron`."""
        self._before_compile("enable_window_context_decoder")
        check_unroll({"unroll": unroll}, self.config)
        check_window(window_context_length, self._options["sequence_length"])
        buckets = sizes_up_to(self._options.get("prefill_buckets", ()), window_context_length)
        self._options |= {"prefill_chunk_size": window_context_length, "prefill_buckets": buckets}

    def _before_compile(self, method: str) -> None:
        if self._model is not None:
            message = f"{method} changes what is compiled, and this model is compiled."
            raise ConfigError(message, hint=f"Call {method} before to_neuron().", method=method)

    def update_generation_config(self, generation_config: GenerationConfig) -> None:
        """Change how `forward` picks tokens; needs `on_device_generation` with `dynamic=True`."""
        if self._generation is None or not self._generation.dynamic:
            message = "The generation configuration cannot be changed: it was not compiled with dynamic=True."
            raise ConfigError(
                message,
                hint="Pass NeuronConfig(on_device_generation=GenerationConfig(dynamic=True, ...)).",
                option="dynamic",
            )
        _sampling_of(generation_config).require_rows(self.num_rows)
        self._generation = generation_config

    def forward(
        self,
        input_ids: torch.Tensor,
        cache_ids: torch.Tensor | None = None,
        start_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Add tokens, and return the logits [batch, vocabulary] after them, in float32.

        With `on_device_generation` it returns the next tokens [batch, 1].

        Args:
            input_ids: tokens [batch, columns].
            cache_ids: columns that they are written to; None or 0 begins new sequences. With `continuous_batching`
                or `padding_side="right"`, the position of each token [batch, columns].
            start_ids: number of padding tokens on the left of each row, for new sequences. With
                `continuous_batching` or `padding_side="right"`, the sequence of each row, a number below the batch
                size.

        Raises:
            ShapeError: the columns are not in the cache, or there is no room for them.
        """
        require_ids(input_ids)
        has_positions = self.neuron_config.padding_side == "right" and cache_ids is not None and cache_ids.ndim == 2
        is_joining = has_positions or self.neuron_config.continuous_batching is not None
        read = self._of_slots if is_joining else self.logits
        logits_RV = read(input_ids, cache_ids, start_ids)[:, -1]
        if (sampling := self.generation_sampling) is None:
            return logits_RV
        return sampling.draw(input_ids, logits_RV)[:, None]

    __call__ = forward

    def speculative_forward(
        self,
        input_ids: torch.Tensor,
        cache_ids: torch.Tensor | None = None,
        start_ids: torch.Tensor | None = None,
        speculation_length: int | None = None,
    ) -> torch.Tensor:
        """Add several tokens, and return the logits [tokens, vocabulary, batch] after each of them."""
        length = require_columns(input_ids, speculation_length)
        return self.logits(input_ids, cache_ids, start_ids, length).permute(1, 2, 0)

    @spelled(KEYWORDS)
    def logits(
        self,
        input_ids: torch.Tensor,
        cache_ids: torch.Tensor | None = None,
        start_ids: torch.Tensor | None = None,
        num_logits: int = 1,
    ) -> torch.Tensor:
        """Add tokens, and return the logits [batch, columns, vocabulary] after the last `num_logits` of them."""
        require_ids(input_ids)
        require_rows(len(input_ids), self.num_rows)
        starts = left_padding(start_ids, len(input_ids), self.neuron_config.padding_side)
        return self._cast(self._positions(input_ids.long(), position(cache_ids), starts, num_logits))

    @spelled(KEYWORDS)
    def _of_slots(
        self, input_ids: torch.Tensor, cache_ids: torch.Tensor | None, start_ids: torch.Tensor | None
    ) -> torch.Tensor:
        """Begin or continue the sequences that `start_ids` names, and return logits as `logits` does."""
        num_rows, num_columns = input_ids.shape
        positions = torch.arange(num_columns).expand(num_rows, -1) if cache_ids is None else torch.as_tensor(cache_ids)
        slots = range(num_rows) if start_ids is None else row_numbers(start_ids, num_rows).tolist()
        return self._cast(self._slots(list(slots), input_ids.long(), positions.expand(num_rows, -1)))

    def _cast(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits as the configuration asks for them."""
        logits = logits.float()
        if self.neuron_config.log_softmax_scores:
            logits = logits.log_softmax(-1)
        if (dtype := self.neuron_config.cast_logits_dtype) == "float32":
            return logits
        return logits.to(getattr(torch, dtype)).float()

    @property
    def generation_sampling(self) -> Sampling | None:
        """How `on_device_generation` draws tokens; None without it."""
        return None if self._generation is None else _sampling_of(self._generation)

    def length_with_room(self, input_ids: torch.Tensor, sequence_length: int, num_beams: int = 1) -> int:
        """Return the length at which sequences end, after a check that prompts are tokens [batch, columns] that fit."""
        require_ids(input_ids)
        require_rows(len(input_ids), self.num_rows, num_beams)
        return length_with_room(sequence_length, self.compiled.sequence_length, input_ids.shape[1])

    def _sample(
        self,
        input_ids: torch.Tensor,
        sequence_length: int,
        *,
        start_ids: torch.Tensor | None = None,
        sampling: Sampling,
        eos_token_override: int | Sequence[int] | None = None,
        streamer: object = None,
        stopping_criteria: object = None,
        scores: list[torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Return prompts with their answers; `sequence_length` counts both."""
        sequence_length = self.length_with_room(input_ids, sequence_length)
        if self._generation is not None and self._generation.max_length is not None:
            sequence_length = min(sequence_length, self._generation.max_length)
        with torch.inference_mode():
            logits_RV = self.logits(input_ids, None, start_ids)[:, -1]
            return run(
                input_ids.long(),
                logits_RV,
                lambda tokens_R: self._cast(self._positions.step(tokens_R))[:, -1],
                sampling=self.generation_sampling or sampling,
                sequence_length=sequence_length,
                end_tokens=self.end_tokens(eos_token_override),
                streamer=streamer,
                stopping_criteria=stopping_criteria,
                scores=scores,
            )

    def end_tokens(self, override: int | Sequence[int] | None = None) -> list[int]:
        """Return the tokens that end a sequence: those of a call, of the generation configuration, or of the model."""
        own = self._generation.eos_token_id if self._generation is not None else None
        found = next((one for one in (override, own, self.config.eos_token_id) if one is not None), [])
        return end_tokens(found)


def _sampling_of(generation: GenerationConfig) -> Sampling:
    """How a generation configuration draws tokens, after a check of its values."""
    own = {field.name: getattr(generation, field.name, None) for field in dataclasses.fields(Sampling)}
    return Sampling(**{name: value for name, value in own.items() if value is not None})


_DEFAULTS: dict[str, Any] = {
    "n_positions": 2048,
    "batch_size": 1,
    "amp": "f32",
    "tp_degree": 2,
    "context_length_estimate": None,
    "neuron_config": None,
}
_UNROLLED = ("unroll", "context_unroll", "init_n_active_tokens")
"""How many layers a program of the vendor has; programs here have all."""
_WITHOUT_EFFECT = ("reorder_cache", "tag")
"""A cache can always be reordered, and programs need no names."""
