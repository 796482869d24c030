"""Compiled language models with the methods of NxD Inference: `compile`, `load`, and `forward` with `seq_ids`.

    model = NeuronBaseForCausalLM("tiny_llama", config)
    model.compile("compiled")
    model = NeuronBaseForCausalLM("compiled")
    model.load("compiled")
    output = model(input_ids, attention_mask, position_ids, seq_ids, sampling_params)

A folder that `compile` writes has `neuron_config.json`, the export in `compiled/`, and a draft's export in `draft/`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..errors import ArtifactError, ConfigError, ModelError, NotExportedError
from ..modeling import (
    Draft,
    EagleDraft,
    NeuronModelForCausalLM,
    SequenceSlots,
    compile_with_warning,
    hidden_layers_of,
    require_experts,
    require_heads,
    require_quantization,
    require_vocabulary,
)
from ..options.spelling import spelled
from ..sources import find_folder, load_source
from . import quantized
from .config import NeuronConfig
from .inference_config import CONFIG_FILE, InferenceConfig, load_pretrained_config
from .inputs import fitting, positions_of
from .merging import differences, merged
from .options import KEYWORDS, export_options, num_rows
from .reference_slots import ReferenceSlots
from .sampling import Sampler, check_params, prepare_sampling_params

logger = logging.getLogger(__name__)

COMPILED, DRAFT = "compiled", "draft"
"""Folders in a compiled model's."""
_OF_QUANTIZATION = ("quantization", "modules_to_not_convert")


class NeuronBaseForCausalLM:
    """A language model; a subclass names its architectures.

    Args:
        model_path: folder of the checkpoint, or of a compiled model.
        config: its configuration; None: that of the compiled model, else of the checkpoint with `neuron_config`.
        neuron_config: options of the compile, in place of `config`.
    """

    model_types: ClassVar[tuple[str, ...]] = ()
    """Architectures of the class; empty: any."""
    config_class: ClassVar[type[InferenceConfig]] = InferenceConfig

    def __init__(
        self, model_path: str | Path, config: InferenceConfig | None = None, neuron_config: NeuronConfig | None = None
    ) -> None:
        self.model_path = str(model_path)
        if config is None and neuron_config is not None:
            config = self.get_config_cls()(neuron_config, load_config=load_pretrained_config(model_path))
        self.config: InferenceConfig = self.get_config_cls().load(model_path) if config is None else config
        self.neuron_config = self.config.neuron_config
        self.draft: Any = None
        """The draft of `fused_spec_config`, once it is loaded."""
        self._model: Any = None
        self._slots: SequenceSlots | None = None
        self._compiled_to: Path | None = None

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """Return the class of `config`."""
        return cls.config_class

    @classmethod
    def get_neuron_config_cls(cls) -> type[NeuronConfig]:
        """Return the class of `neuron_config`."""
        return cls.config_class.get_neuron_config_cls()

    @property
    def on_device_sampling(self) -> bool:
        """Whether calls return tokens."""
        return self.neuron_config.on_device_sampling_config is not None

    @classmethod
    @spelled(KEYWORDS)
    def save_quantized_state_dict(cls, model_path: str | Path, config: InferenceConfig) -> None:
        """Quantize a checkpoint, and write `quantized_checkpoints_path`, which `compile` and `load` read.

        Args:
            model_path: folder of the checkpoint.
            config: its configuration, with `quantized=True`.

        Raises:
            ConfigError: it is not quantized, an option is unknown, or the checkpoint contradicts it.
        """
        if not config.neuron_config.quantized:
            hint = "Pass NeuronConfig(quantized=True, quantized_checkpoints_path=..., quantization_dtype=...)."
            raise ConfigError("The configuration is not quantized.", hint=hint, option="quantized")
        cls(model_path, config)._checked_config(model_path, export_options(config))
        quantized.write(AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32), config.neuron_config)

    # Compile and load.

    @spelled(KEYWORDS)
    def compile(
        self,
        compiled_model_path: str | Path,
        debug: bool = False,
        pre_shard_weights_hook: Any = None,
        dry_run: bool = False,
        disable_fail_fast: bool = False,
    ) -> None:
        """Compile the checkpoint, and write `neuron_config.json` and the export into a folder.

        Args:
            compiled_model_path: the folder.
            debug: has no effect here: `describe()` of the loaded model has what a compile chose.
            pre_shard_weights_hook: called with this object before the weights are read.
            dry_run: check the options only.
            disable_fail_fast: has no effect here: no compile runs on after an error.

        Raises:
            ConfigError: an option is out of range, or not possible on an instance.
            ModelError: the checkpoint is of another family.
        """
        folder, options = Path(compiled_model_path), self._options()
        if dry_run or self.neuron_config.on_cpu:
            self._checked_config(self.model_path, options)
            self.config.save(folder)
            return
        with quantized.readable(self.neuron_config, self.model_path) as source:
            options |= {"config": self._checked_config(source, options), "export": True}
            if pre_shard_weights_hook is not None:
                pre_shard_weights_hook(self)
            if (draft := self._new_draft()) is not None:
                draft.compile(folder / DRAFT)
            with compile_with_warning(NeuronModelForCausalLM.from_pretrained, source, **options) as model:
                model.save_pretrained(folder / COMPILED)
        self.config.save(folder)
        self._compiled_to = folder.resolve()

    @spelled(KEYWORDS)
    def load(
        self,
        compiled_model_path: str | Path,
        start_rank_id: int | None = None,
        local_ranks_size: int | None = None,
        skip_warmup: bool = False,
    ) -> None:
        """Place a compiled model on simulated cores, with the weights of `model_path` if that is a checkpoint.

        Args:
            compiled_model_path: folder that `compile` wrote.
            start_rank_id: must be 0 or None: all cores are in this process.
            local_ranks_size: must be all cores, or None.
            skip_warmup: has no effect here: nothing has to warm up.

        Raises:
            NotExportedError: the folder has no compiled model.
            ConfigError: it was compiled with other options.
            ArtifactError: it was compiled from another model.
        """
        if start_rank_id or local_ranks_size not in (None, self.neuron_config.world_size):
            raise ConfigError(
                f"start_rank_id={start_rank_id}, local_ranks_size={local_ranks_size} name a part of the cores.",
                hint="Leave them out: all cores are simulated in one process.",
                options=["start_rank_id", "local_ranks_size"],
            )
        folder = Path(compiled_model_path)
        if not is_compiled(folder):
            message = f"{folder} has no compiled model."
            raise NotExportedError(message, hint="Call compile() with this folder first.", folder=str(folder))
        model = NeuronModelForCausalLM.from_pretrained(folder / COMPILED, export=False, **self._options())
        try:
            self._place(model, folder)
        except BaseException:
            model.close()
            raise

    def _place(self, model: NeuronModelForCausalLM, folder: Path) -> None:
        self._check_same_model(model.config, folder)
        if self._compiled_to != folder.resolve() and self._has_weights(folder):
            with quantized.readable(self.neuron_config, self.model_path) as source:
                model.replace_weights(source)
        if (lora := self.neuron_config.lora_config) is not None:
            for name, path in lora.lora_ckpt_paths.items():
                model.load_adapter(Path(path).expanduser(), name)
        draft: Any = self._new_draft()
        if draft is not None:
            draft.load(folder / DRAFT)
        elif self.neuron_config.enable_eagle_speculation:
            draft = EagleDraft.from_pretrained(self._draft_path(), model)
        self._model, self.draft = model, draft
        self._slots = SequenceSlots(model, num_rows(self.neuron_config))
        self._sampler = Sampler(self.neuron_config) if self.on_device_sampling else None

    def _options(self) -> dict[str, Any]:
        """Options of the export, with the hidden states that an EAGLE draft reads."""
        options, neuron = export_options(self.config), self.neuron_config
        if quantized.stored(neuron, self.model_path) is not None:
            # The checkpoint says which modules are quantized, and how.
            options = {name: one for name, one in options.items() if name not in _OF_QUANTIZATION}
        elif neuron.modules_to_not_convert and not neuron.quantized:
            logger.info("Without effect: modules_to_not_convert, as nothing is quantized.")
        elif neuron.quantized:
            path = neuron.quantized_checkpoints_path
            logger.info("%s has no checkpoint: weights are quantized here, with a scale for each output.", path)
        if not neuron.enable_eagle_speculation:
            return options
        num_layers = self.config.get_text_config().num_hidden_layers
        layers = hidden_layers_of(path := self._draft_path(), num_layers)
        if neuron.is_eagle3 and layers == (num_layers,):
            message = f"is_eagle3=True, but {path} has the tensors of an EAGLE draft of the first generation."
            raise ConfigError(message, hint="Pass is_eagle3=False.", option="is_eagle3", path=path)
        if not layers:
            return options
        if options.pop("sequence_parallel", False):
            logger.info("Without sequence_parallel: an EAGLE draft reads whole hidden states.")
        return options | {"hidden_state_layers": layers}

    def _has_weights(self, folder: Path) -> bool:
        """Whether `model_path` is a checkpoint, and not the compiled model itself."""
        source = Path(self.model_path)
        return not (source.is_dir() and (source / CONFIG_FILE).exists() and is_compiled(source))

    def _checked_config(self, source: str | Path, options: dict[str, Any]) -> PretrainedConfig:
        """Return the configuration of a checkpoint, with the attributes that were changed in `config`."""
        config = load_source(find_folder(source), with_weights=False).config
        if self.model_types and config.model_type not in self.model_types:
            raise ModelError(
                f"{type(self).__name__} is for {', '.join(self.model_types)}, not for {config.model_type}.",
                hint="Use the class of this architecture.",
                model_type=config.model_type,
            )
        require_heads(config, self.neuron_config.tp_degree)
        require_experts(config, self.neuron_config.ep_degree)
        require_quantization(config, options.get("quantization"))
        return merged(config, self.config)

    def _check_same_model(self, saved: PretrainedConfig, folder: Path) -> None:
        if found := differences(saved, self.config):
            raise ArtifactError(
                f"{folder} was compiled from another model: {'; '.join(found)}.",
                hint="Load the folder of this checkpoint, or compile again.",
                folder=str(folder),
                differences=found,
            )

    def _new_draft(self) -> NeuronBaseForCausalLM | None:
        """Return the draft that is compiled beside this model; EAGLE's draft reads the model itself."""
        if not self.neuron_config.enable_fused_speculation or self.neuron_config.enable_eagle_speculation:
            return None
        path, given = self._draft_path(), self.config.fused_spec_config
        assert given is not None
        if given.draft_config is None:
            message = "fused_spec_config has no draft_config."
            raise ConfigError(message, hint="Pass the InferenceConfig of the draft.", option="draft_config")
        kind = given.draft_model_cls or type(self)
        draft: NeuronBaseForCausalLM = kind(path, given.draft_config)
        self.require_vocabulary_of(draft)
        return draft

    def require_vocabulary_of(self, draft: NeuronBaseForCausalLM) -> None:
        """Check that a draft has the tokens of this model."""
        require_vocabulary(*(one.config.get_text_config().vocab_size for one in (draft, self)))

    def _draft_path(self) -> str:
        given = self.config.fused_spec_config
        if given is None or given.draft_model_path is None:
            message = "enable_fused_speculation=True needs fused_spec_config with draft_model_path."
            hint = "Pass FusedSpecNeuronConfig(worker_cls, draft_config=..., draft_model_path=...)."
            raise ConfigError(message, hint=hint, option="fused_spec_config")
        return given.draft_model_path

    def to_cpu(self) -> None:
        """Run the checkpoint on the CPU by transformers, with `on_cpu=True`."""
        self._model = self.load_hf_model()
        self._slots = ReferenceSlots(self._model, num_rows(self.neuron_config), self.neuron_config.max_length)
        self._sampler = Sampler(self.neuron_config) if self.on_device_sampling else None

    @property
    def _checkpoint(self) -> str:
        """Folder with the weights: `model_path`, or the export in a compiled model."""
        inside = Path(self.model_path, COMPILED)
        return str(inside) if is_compiled(self.model_path) else self.model_path

    def load_hf_model(self, model_path: str | Path | None = None) -> Any:
        """Return transformers' model of the checkpoint, in the dtype of the configuration."""
        folder = self._checkpoint if model_path in (None, self.model_path) else model_path
        return AutoModelForCausalLM.from_pretrained(folder, dtype=self.neuron_config.torch_dtype).eval()

    @property
    def compiled(self) -> Any:
        """The `NeuronModelForCausalLM` behind this model, for everything that it does not have."""
        if self._model is None:
            message = f"This {type(self).__name__} is not loaded."
            raise ConfigError(message, hint="Call load(folder) first.", model=type(self).__name__)
        return self._model

    @property
    def assistant(self) -> Draft | Any:
        """What proposes tokens in `generate`; None: nothing."""
        return self.draft.compiled if isinstance(self.draft, NeuronBaseForCausalLM) else self.draft

    def close(self) -> None:
        """Free the cores."""
        for model in (self._model, self.draft):
            if hasattr(model, "close"):
                model.close()

    # Calls.

    @property
    def kv_cache_populated(self) -> bool:
        """Whether there are sequences in the cache."""
        return self._slots is not None and bool(self._slots.lengths_S.any())

    def reset(self) -> None:
        """Forget the sequences in the cache."""
        if self._slots is not None:
            self._slots.reset()

    reset_kv_cache = reset

    @spelled(KEYWORDS)
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        seq_ids: torch.Tensor | None = None,
        sampling_params: torch.Tensor | None = None,
        adapter_ids: Any = None,
        **others: Any,
    ) -> CausalLMOutputWithPast:
        """Begin sequences, or add tokens to them; the result has `logits` [batch, tokens, vocabulary] or `tokens`.

        Args:
            input_ids: tokens [batch, columns].
            attention_mask: 1 for real tokens of prompts; None: derived from `position_ids`.
            position_ids: positions; rows that begin at 0 are new sequences. None: of prompts.
            seq_ids: the sequence of each row, a number below the batch size; None: the first ones.
            sampling_params: [batch, 3] of `prepare_sampling_params`; None: those of the compiled configuration.
            adapter_ids: LoRA adapter of each row.
            **others: further arguments of NxD Inference, which must be None.

        Raises:
            ShapeError: a prompt is too long, or positions are not those of the cache.
            ConfigError: sampling parameters are out of range.
        """
        if given := sorted(name for name, value in others.items() if value is not None):
            raise ConfigError(f"{', '.join(given)} are not supported.", hint="Leave them out.", options=given)
        assert self.compiled is not None and self._slots is not None, "`compiled` raises if nothing is loaded"
        params = self._params(sampling_params, len(input_ids))
        positions = positions_of(input_ids, attention_mask) if position_ids is None else position_ids
        ids = fitting(self.neuron_config, input_ids).long()
        rows = list(range(len(ids))) if seq_ids is None else torch.as_tensor(seq_ids).reshape(-1).tolist()
        logits_RTV = self._slots(rows, ids, positions[:, : ids.shape[1]], attention_mask, adapter_ids)
        if self._sampler is None:
            return CausalLMOutputWithPast(logits=logits_RTV)
        output = CausalLMOutputWithPast(logits=logits_RTV if self.neuron_config.output_logits else None)
        output.tokens = self._sampler(logits_RTV[:, -1], params)
        return output

    __call__ = forward

    def _params(self, given: torch.Tensor | None, num_rows: int) -> torch.Tensor | None:
        """Return the checked parameters of each row; None without sampling on the device."""
        config = self.neuron_config.on_device_sampling_config
        if config is None:
            return None
        if given is None:
            return prepare_sampling_params(num_rows, config.top_k, config.top_p, config.temperature)
        check_params(given, config, num_rows)
        return given


def is_compiled(model_path: str | Path) -> bool:
    """Return whether a folder has a compiled model."""
    return (Path(model_path) / COMPILED / CONFIG_FILE).is_file()
