"""Facts of a loaded model under vLLM's names, as scripts read them from `llm.llm_engine.model_config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..serving import Generator

if TYPE_CHECKING:
    from .engine_args import EngineArgs


class ModelFacts:
    """What vLLM's `ModelConfig` says of a model."""

    def __init__(self, args: EngineArgs, backend: Any) -> None:
        self._backend = backend
        self.model, self.tokenizer = args.model, args.tokenizer or args.model
        self.trust_remote_code, self.revision, self.seed = args.trust_remote_code, args.revision, args.seed
        self.quantization, self.max_logprobs = args.quantization, args.max_logprobs
        self.served_model_name = args.served_model_name or args.model
        self.hf_config = backend.model.config
        self.max_model_len = backend.max_length
        self.runner_type = "generate" if isinstance(backend, Generator) else "pooling"

    @property
    def hf_text_config(self) -> Any:
        """Configuration of the text model."""
        return self.hf_config.get_text_config(decoder=True)

    @property
    def dtype(self) -> Any:
        """Dtype of the weights."""
        return self._backend.model.dtype

    def get_vocab_size(self) -> int:
        """Return the number of tokens."""
        return int(self.hf_text_config.vocab_size)

    def get_hidden_size(self) -> int:
        """Return the width of the hidden states."""
        return int(self.hf_text_config.hidden_size)
