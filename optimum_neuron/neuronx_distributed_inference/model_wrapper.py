"""One program of a model of NxD Inference: its flags, example inputs, buckets, and the padding of calls.

    wrapper = ModelWrapper(config, Network, tag=TOKEN_GENERATION_MODEL_TAG)
    wrapper.load_state_dict(state)
    logits = wrapper(input_ids, attention_mask, position_ids, seq_ids, sampling_params)

`NeuronBaseForCausalLM` does without it: an export has all programs.

Shape legend: R rows, C columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from ..base.model_facts import facts_of
from ..errors import ConfigError, ShapeError
from .config import NeuronConfig
from .inference_config import InferenceConfig
from .program_buckets import (
    FIRST,
    bucket_of_batch,
    bucket_of_length,
    bucket_of_prompt_with_prefix,
    bucket_of_step_with_prefix,
    require_strategy,
)
from .program_flags import (
    CONTEXT_ENCODING_MODEL_TAG,
    FUSED_SPECULATION_MODEL_TAG,
    MEDUSA_MODEL_TAG,
    OF_PROMPTS,
    SPECULATION_MODEL_TAG,
    TOKEN_GENERATION_MODEL_TAG,
    compiler_args as flags_of,
)
from .sampling import prepare_sampling_params

_MAX = "max"
_PADDED = 3
"""Inputs of a prompt that are padded: tokens, mask, and positions."""
_PADDING_POSITION = 1
_NEW, _PREFIX = (13, 14), (9, 10)
"""Places of the numbers of new tokens and of tokens of the prefix; the second with a draft in the program."""


def get_modules_to_not_convert(neuron_config: NeuronConfig) -> list[str] | None:
    """Return the modules that are not quantized."""
    return getattr(neuron_config, "modules_to_not_convert", None)


class ModelWrapper(torch.nn.Module):
    """A program, by its tag.

    Args:
        config: configuration of the model; a missing `pad_token_id` becomes 0.
        model_cls: class of the network, called with `config` and `model_init_kwargs`.
        tag: which program.
        compiler_args: its flags; None: those of the tag.
        model_init_kwargs: further arguments of `model_cls`.
    """

    def __init__(
        self,
        config: InferenceConfig,
        model_cls: Callable[..., torch.nn.Module],
        tag: str = "",
        compiler_args: str | None = None,
        model_init_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.config, self.neuron_config, self.model_cls, self.tag = config, config.neuron_config, model_cls, tag
        self.model_init_kwargs = dict(model_init_kwargs or {})
        if facts_of(config).pad_token_id is None:
            config.pad_token_id = 0
        self.model: Any = None
        """The network, once it is loaded."""
        self.is_batch_bucketing = self.neuron_config.token_generation_batches is not None
        self.is_prefix_caching = self.neuron_config.is_prefix_caching
        self.async_mode = self.neuron_config.async_mode
        self.compiler_args = flags_of(self.neuron_config, tag, compiler_args)

    def is_neuron(self) -> bool:
        """Return whether the network is compiled."""
        return isinstance(self.model, torch.jit.ScriptModule)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Make the network on the CPU, and load its weights."""
        self.model = self.model_cls(self.config, **self.model_init_kwargs)
        return self.model.load_state_dict(state_dict, strict=strict, assign=assign)

    # Inputs.

    def input_generator(self) -> list[tuple[torch.Tensor, ...]]:
        """Return example inputs of each bucket.

        Each has tokens, mask, positions, numbers of sequences, parameters of sampling, hidden states, and adapters.
        """
        if self.is_prefix_caching or self.neuron_config.is_medusa:
            name = "is_prefix_caching" if self.is_prefix_caching else "is_medusa"
            raise ConfigError(f"{name}=True has no example inputs here.", hint="Remove it.", option=name)
        return [self._example(bucket) for bucket in self.neuron_config.buckets]

    def _example(self, bucket: Any) -> tuple[torch.Tensor, ...]:
        neuron = self.neuron_config
        num_rows, num_slots = bucket if isinstance(bucket, (list, tuple)) else (neuron.batch_size, bucket)
        num_columns = num_slots if neuron.bucket_n_active_tokens else neuron.n_active_tokens
        ids_RC = torch.ones(num_rows, num_columns, dtype=torch.int32)
        positions_RC = torch.ones_like(ids_RC)
        if self.tag in (*OF_PROMPTS, MEDUSA_MODEL_TAG):
            positions_RC = torch.arange(num_columns, dtype=torch.int32).repeat(num_rows, 1)
        params = prepare_sampling_params(num_rows)
        if (sampling := neuron.on_device_sampling_config) is not None and sampling.do_sample:
            params = prepare_sampling_params(num_rows, sampling.top_k, sampling.top_p, sampling.temperature)
        hidden = torch.zeros(num_rows, dtype=torch.int32)
        if neuron.is_eagle_draft:
            hidden = torch.zeros(num_rows, num_columns, self.config.hidden_size, dtype=neuron.torch_dtype)
        mask = torch.ones(num_rows, num_slots, dtype=torch.int32)
        rows = torch.arange(num_rows, dtype=torch.int32)
        return ids_RC, mask, positions_RC, rows, params, hidden, torch.zeros(num_rows, dtype=torch.int32)

    def convert_int64_to_int32(self, *args: Any) -> list[Any]:
        """Return the arguments with 32-bit integers in place of 64-bit ones."""
        return [
            arg.to(torch.int32) if isinstance(arg, torch.Tensor) and arg.dtype == torch.int64 else arg for arg in args
        ]

    # Buckets.

    def get_target_bucket(self, *args: torch.Tensor, strategy: str = FIRST) -> Any:
        """Return the bucket of a call: columns, or rows and columns with `token_generation_batches`.

        Args:
            *args: tokens, mask, positions, numbers of sequences.
            strategy: "first_fit" or "second_fit".

        Raises:
            ShapeError: the call fits in no bucket.
        """
        require_strategy(strategy)
        neuron, length = self.neuron_config, args[1].shape[1]
        has_draft = self.tag in (FUSED_SPECULATION_MODEL_TAG, SPECULATION_MODEL_TAG)
        extra = neuron.speculation_length if has_draft else 0
        may_cut = neuron.allow_input_truncation
        if not self._has_rows:
            return bucket_of_length(neuron.buckets, length, extra=extra, strategy=strategy, may_cut=may_cut)
        if strategy != FIRST:
            message = f"strategy={strategy!r} does not go with token_generation_batches."
            raise ConfigError(message, hint=f"Pass {FIRST!r}.", option="strategy", value=strategy)
        return bucket_of_batch(neuron.buckets, len(args[3]), length, extra=extra, may_cut=may_cut)

    @property
    def _has_rows(self) -> bool:
        return self.is_batch_bucketing and self.tag == TOKEN_GENERATION_MODEL_TAG

    def get_target_2d_bucket_for_prefix_caching(self, *args: torch.Tensor, strategy: str = FIRST) -> torch.Tensor:
        """Return new tokens and tokens of the prefix of the bucket of a call whose prefix is in the cache.

        Args:
            *args: all inputs, with the numbers of new tokens and of tokens of the prefix of each row.
            strategy: "first_fit" or "second_fit".

        Raises:
            ShapeError: the call fits in no bucket.
        """
        require_strategy(strategy)
        neuron = self.neuron_config
        buckets = torch.tensor(neuron.buckets, dtype=torch.int32)
        new, prefix = (args[place] for place in (_PREFIX if neuron.enable_fused_speculation else _NEW))
        may_cut = neuron.allow_input_truncation
        if self.tag == CONTEXT_ENCODING_MODEL_TAG:
            block = neuron.pa_block_size if neuron.enable_eagle_speculation else 0
            return bucket_of_prompt_with_prefix(buckets, int(new[0]), int(prefix[0]), block=block, may_cut=may_cut)
        has_draft = self.tag == FUSED_SPECULATION_MODEL_TAG and not self.async_mode
        extra = neuron.speculation_length if has_draft else 0
        return bucket_of_step_with_prefix(buckets, new, prefix, extra=extra, strategy=strategy, may_cut=may_cut)

    # Calls.

    def pad_inputs(self, *args: torch.Tensor, pad_type: str = FIRST) -> tuple[torch.Tensor, ...]:
        """Return the inputs with the columns of a bucket: prompts in all of them, steps in the mask.

        Args:
            *args: tokens, mask, positions, numbers of sequences, and others, which stay.
            pad_type: "first_fit", "second_fit", or "max": the longest that there is room for.

        Raises:
            ShapeError: they are longer, and `allow_input_truncation` is False.
        """
        neuron, is_prompt = self.neuron_config, self.tag in OF_PROMPTS
        limit = "max_context_length" if is_prompt else "max_length"
        if pad_type == _MAX:
            length = getattr(neuron, limit)
        else:
            bucket = self.get_target_bucket(*args, strategy=pad_type)
            length = bucket[-1] if isinstance(bucket, (list, tuple)) else bucket
        given = args[1].shape[1]
        if given > length:
            what = f"Inputs supplied ({given} tokens)" if is_prompt else f"Attention mask supplied (length={given})"
            if not neuron.allow_input_truncation:
                message = f"{what} longer than {limit} ({length} tokens)."
                hint = "To truncate inputs, set allow_input_truncation=True."
                raise ShapeError(message, hint=hint, num_tokens=given, limit=length)
            warnings.warn(f"{what} longer than {limit}. Truncating to {length}.", UserWarning, stacklevel=2)
        if not is_prompt:
            return (args[0], F.pad(args[1], (0, length - given)), *args[2:])
        values = (self.config.pad_token_id, 0, _PADDING_POSITION)
        padded = [
            F.pad(arg, (0, length - arg.shape[1]), value=value)
            for arg, value in zip(args[:_PADDED], values, strict=True)
        ]
        return (*padded, *args[_PADDED:])

    def vllm_cte_repadding(self, batch_args: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the inputs of one prompt in its own bucket, without the padding to the longest prompt of its batch.

        Args:
            batch_args: tokens, mask, positions, which are 0 in the padding, and others, which stay.

        Raises:
            ShapeError: the prompt fits in no bucket.
        """
        length = int(batch_args[2].max()) + 1
        own = [arg[:, :length] for arg in batch_args[:_PADDED]]
        return self.pad_inputs(*own, *batch_args[_PADDED:])

    def forward(self, *args: Any, pad_type: str = FIRST) -> Any:
        """Call the network with padded inputs, in batches of `batch_size`; return the results of the rows that came.

        Rows of an incomplete batch are ordered by their sequence, and missing ones repeat the first.

        Args:
            *args: tokens, mask, positions, numbers of sequences, and others.
            pad_type: see `pad_inputs`.
        """
        if self.model is None:
            raise ConfigError("The network is not loaded.", hint="Call load_state_dict, or set model.", tag=self.tag)
        inputs = self.pad_inputs(*self.convert_int64_to_int32(*args), pad_type=pad_type)
        size = self.neuron_config.batch_size
        if self._has_rows:
            size = self.get_target_bucket(*args)[0]
        batches = [[arg[start : start + size] for arg in inputs] for start in range(0, len(inputs[3]), size)]
        results = [self._call(batch, size) for batch in batches]
        if isinstance(results[0], torch.Tensor):
            return torch.cat(results)
        return tuple(torch.cat(parts) for parts in zip(*results, strict=True))

    def _call(self, batch: list[torch.Tensor], size: int) -> Any:
        """Call the network with at most `size` rows."""
        rows = batch[3].tolist()
        if len(rows) == size:
            return self.model(*batch)
        all_rows = rows + [row for row in range(size) if row not in rows][: size - len(rows)]
        order = torch.tensor(sorted(range(size), key=all_rows.__getitem__))
        full = [torch.cat([arg, arg[:1].expand(size - len(rows), *arg.shape[1:])])[order] for arg in batch]
        full[3] = torch.tensor(sorted(all_rows), dtype=batch[3].dtype)
        places = order.argsort()[: len(rows)]
        results = self.model(*full)
        return results[places] if isinstance(results, torch.Tensor) else tuple(result[places] for result in results)
