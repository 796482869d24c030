"""`CompiledModel`: a compiled program in the hands of a user: saved, pushed, given other weights, described, estimated.

It knows nothing of how the program came about (`loading.py`), nor what it is called with.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from ..configuration import check_known
from ..errors import ConfigError, refusal
from ..exporters.export import describe
from ..exporters.folder import is_export
from ..exporters.prepare import Prepared
from ..exporters.save import save_folder
from ..runtime.copies import Copies
from ..runtime.loaded import LoadedProgram
from .checks import on_host
from .facts import ModelFacts, with_facts
from .parameters import CheckpointParameters
from .weights import Weights, open_weights

if TYPE_CHECKING:
    from ..simulator import Estimate

_ESTIMATE_OPTIONS = ["output_length", "sequence_length", "concurrency", "data_parallel_size"]
"""Keywords of an estimate that do not contradict what was compiled."""


class CompiledModel(ModelFacts, CheckpointParameters):
    """A program with its weights on a simulated core, and what every model has beside `forward`."""

    def __init__(self, prepared: Prepared) -> None:
        assert prepared.loaded is not None, "a model needs weights"
        self.prepared = prepared
        self.config = with_facts(prepared.source.config, prepared.config)
        self.neuron_config = prepared.config
        self.loaded: LoadedProgram = prepared.loaded
        self.copies = Copies([prepared.loaded])
        self._saved_in = prepared.source.folder.resolve() if is_export(prepared.source.folder) else None

    def __repr__(self) -> str:
        config = self.neuron_config
        shapes = [f"{axis}={size}" for axis, size in self.input_static_shapes.items()]
        facts = [self.prepared.source.name, config.task, *shapes, f"simulated {config.target}"]
        return f"{type(self).__name__}({', '.join(facts)})"

    def save_pretrained(self, save_directory: str | Path, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Write an exported folder, which `from_pretrained` and the command line read."""
        if not push_to_hub:
            check_known(kwargs, ["save_directory", "push_to_hub"], what="save_pretrained")
        save_folder(self.prepared, Path(save_directory))
        self._saved_in = Path(save_directory).resolve()
        if push_to_hub:
            self.push_to_hub(save_directory, **kwargs)

    def push_to_hub(
        self,
        save_directory: str | Path,
        repository_id: str,
        private: bool | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        commit_message: str = "Upload exported model",
    ) -> str:
        """Upload the model to the Hub; return the commit's address.

        Args:
            save_directory: folder to upload; the model is saved there first, unless it was already, as it is now.
            repository_id: name on the Hub; the repository is made where there is none.
            private: whether a new repository is.
            revision: branch to write to.
            token: token of the Hub; None takes the one of the login.
            commit_message: message of the commit.
        """
        from huggingface_hub import HfApi

        if Path(save_directory).resolve() != self._saved_in:
            self.save_pretrained(save_directory)
        api = HfApi(token=token)
        api.create_repo(repository_id, private=private, exist_ok=True)
        return api.upload_folder(
            repo_id=repository_id, folder_path=save_directory, revision=revision, commit_message=commit_message
        )

    def replace_weights(self, weights: Weights) -> None:
        """Bind other weights of the same architecture to every copy, without compiling.

        Args:
            weights: folder with safetensors, id on the Hub, state dict, or transformers model; names are those of the
                original checkpoint. Later changes of tensors in memory do not reach the compiled model.

        Raises:
            WeightsError: tensors are missing or have another shape, all of which are named, or the configuration is
                another one; nothing is replaced then.
            CoreBusyError: the model was closed.

        Example:
            ```python no-run
            model.replace_weights("fine_tuned")  # or fine_tuned_model.state_dict()
            ```
        """
        self.loaded.require_open(f"other weights for {self.prepared.source.name}")
        opened = open_weights(weights, self.prepared)
        assert self.prepared.bound is not None
        tensors, replacement = opened.tensors, self.prepared.artifact.bind(opened.tensors.value)
        bound = dataclasses.replace(self.prepared.bound, tensors=tensors, weights=replacement)
        for loaded in self.copies.loaded:
            loaded.bind(bound.host, replacement.tensors)
        self.model.reset()
        # The validation was of the weights before.
        self.prepared = dataclasses.replace(self.prepared, bound=bound, source=opened.source, validation=())
        self._saved_in = None

    def close(self) -> None:
        """Free the cores, the HBM, and the threads of the model. A call after it is a `CoreBusyError`.

        Without `close`, they are free when the last reference to the model goes. Calling it again does nothing.

        Example:
            ```python no-run
            with NeuronModelForCausalLM.from_pretrained("smollm2_neuron") as model:
                model.generate(**inputs)
            ```
        """
        self.copies.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def wait_for_host_code(self, timeout_s: float | None = None) -> bool:
        """Wait until the blocks that are compiled in the background are ready; the next call runs on them.

        Args:
            timeout_s: longest time to wait, in seconds; None waits for the end.

        Returns:
            Whether they are ready.

        Raises:
            LoweringError: a block could not be compiled.
        """
        assert self.prepared.host is not None
        return self.prepared.host.wait(timeout_s)

    def describe(self) -> dict[str, Any]:
        """Every automatic choice with its reason, memory, validation and timings, as plain data."""
        return describe(self.prepared)

    def estimate(self, *, instance: str | None = None, price: float | None = None, **request: Any) -> Estimate:
        """What the compiled program would take on an instance; every number is simulated.

        Args:
            instance: instance or family; None for the one that it was compiled for.
            price: US dollars for an hour of the instance; None for the published on-demand price.
            **request: `output_length`, `sequence_length`, `concurrency` and `data_parallel_size` of
                `optimum_neuron.simulator.estimate`; shapes are those that were compiled.

        Raises:
            ConfigError: the instance is unknown, or a size is not possible.
        """
        from ..simulator.decoders import DecoderRequest
        from ..simulator.machine import choose_machine
        from ..simulator.programs import program_estimate

        check_known(request, _ESTIMATE_OPTIONS, what="the estimate of a compiled model")
        machine = choose_machine(instance or self.neuron_config.instance_type, price=price)
        name = self.prepared.source.name
        return program_estimate(
            self.prepared.program, self.neuron_config, DecoderRequest(**request), machine, name=name
        )

    @property
    def device(self) -> torch.device:
        """Where inputs are expected."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of weights."""
        return getattr(torch, self.neuron_config.torch_dtype)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Accept the CPU, where inputs are; a compiled program cannot be moved or cast.

        Raises:
            ConfigError: another device or a dtype was asked for.
        """
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if (device is not None and device.type not in ("cpu", "neuron")) or dtype not in (None, self.dtype):
            raise ConfigError(
                refusal(
                    asked=f"to({', '.join(map(str, (*args, *kwargs.values())))})",
                    found=f"a program of {self.dtype} on a simulated {self.neuron_config.target} core",
                    why="a compiled program is neither moved nor cast",
                    do="export with another torch_dtype, or leave to() out",
                )
            )
        return self

    def eval(self) -> Self:
        """A compiled program is always in evaluation mode."""
        return self

    @property
    def training(self) -> bool:
        """Never: the graph was captured for inference."""
        return False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`.

        Inputs on the device "neuron" are brought to the CPU, where the results are.

        Raises:
            ShapeError: an input is on another device.
        """
        args, kwargs = on_host(args, kwargs)
        return self.forward(*args, **kwargs)  # type: ignore[attr-defined]
