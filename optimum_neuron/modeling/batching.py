"""transformers' interface of continuous batching, for programs that were exported with `continuous_batching=True`.

`generate_batch` answers a list of prompts; `continuous_batching_context_manager` yields a manager, to which requests
can be added while others run.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transformers import GenerationConfig

from ..batching import BatchingManager, Engine, Runner, read_settings
from ..errors import ConfigError
from .adapters import check_names

if TYPE_CHECKING:
    from transformers.generation.continuous_batching.requests import GenerationOutput

    from ..engine import Signature
    from ..runtime import LoadedProgram


class ContinuousBatching:
    """Methods of a model that serves many requests; `continuous_batching_context_manager` is transformers' own."""

    loaded: LoadedProgram
    generation_config: GenerationConfig
    _signature: Signature
    _cached_continuous_batching_manager: BatchingManager | None = None

    def init_continuous_batching(
        self,
        generation_config: GenerationConfig | None = None,
        continuous_batching_config: object = None,
        workload_hints: object = None,
    ) -> BatchingManager:
        """Return a manager that is not started.

        Args:
            generation_config: settings of all requests; each may have others. None for the model's.
            continuous_batching_config: transformers' `ContinuousBatchingConfig`.
            workload_hints: transformers' sizes of a load; sizes are compiled here.
        """
        if (kept := self._cached_continuous_batching_manager) is not None:
            return kept
        if not self._signature.is_paged:
            message = "This model was exported without continuous batching: its cache has a place for each sequence."
            hint = "Call generate() with all prompts in one padded batch, or export a decoder of text with "
            hint += "continuous_batching=True."
            raise ConfigError(message, hint=hint, option="continuous_batching", value=False)
        generation_config = generation_config or self.generation_config
        if continuous_batching_config is None:  # transformers' former place of it
            continuous_batching_config = generation_config.continuous_batching_config
        runner = Runner(self.loaded, self._signature)
        try:
            settings = read_settings(continuous_batching_config, runner)
        except ConfigError:
            runner.close()
            raise
        engine = Engine(runner, enable_prefix_caching=settings.allow_block_sharing)
        return BatchingManager(self, engine, generation_config, settings)

    def destroy_cached_continuous_batching_manager(self) -> None:
        """Stop a manager that was kept, and give its memory back."""
        kept, self._cached_continuous_batching_manager = self._cached_continuous_batching_manager, None
        if kept is not None:
            kept.destroy()

    def generate_batch(
        self,
        inputs: Sequence[Sequence[int]],
        generation_config: GenerationConfig | None = None,
        continuous_batching_config: Any = None,
        record_timestamps: bool = False,
        progress_bar: bool = False,
        persistent_manager: bool = False,
        warmup: bool = True,
        adapter_names: Sequence[str] | None = None,
        **settings: Any,
    ) -> dict[str, GenerationOutput]:
        """Answer prompts of any number and length; return outputs by request, in the order of the prompts.

        Args:
            inputs: token ids of each prompt.
            generation_config: settings; None for the model's.
            continuous_batching_config: transformers' `ContinuousBatchingConfig`.
            record_timestamps: note the time of each token.
            progress_bar: show one.
            persistent_manager: keep the manager, and what prompts share, for the next call.
            warmup: nothing has to warm up here.
            adapter_names: LoRA adapter of each prompt, "__base__" for the base model; None: the active one.
            **settings: any setting of generation, as `generate` takes them, and `seed`.
        """
        from tqdm import tqdm

        manager = self.init_continuous_batching(generation_config, continuous_batching_config)
        manager.use(generation_config or self.generation_config)
        first = settings.pop("seed", None)
        if adapter_names is not None:
            check_names(adapter_names, len(inputs))
        left, names, outputs = [], [], {}
        try:
            for index, prompt in enumerate(inputs):
                siblings = manager.make_siblings(
                    prompt,
                    settings,
                    seed=None if first is None else first + index,
                    record_timestamps=record_timestamps,
                    adapter_name=None if adapter_names is None else adapter_names[index],
                )
                left.append(siblings)
                names += [request.request_id for request in siblings]
            if not manager.is_running():
                manager.start()
            while left:
                if not manager.submit(left.pop(0), patience_s=None):
                    raise RuntimeError("Continuous batching ended.") from manager.fatal_error
            for name in tqdm(names, disable=not progress_bar, unit="request"):
                output = manager.get_result(name)
                assert output is not None, "the thread delivers every request before it ends"
                outputs[name] = output
        finally:
            for request in itertools.chain.from_iterable(left):
                request.adapter.release()
            if not persistent_manager:
                self.destroy_cached_continuous_batching_manager()
                manager.destroy()
            elif manager.is_running():
                manager.stop(keep_for_next_session=True)
        return outputs
