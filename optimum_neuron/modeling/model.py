"""`CompiledModel`: save, push, describe, and estimate a compiled model, and replace its weights.

It depends neither on compiling and loading (`loading.py`) nor on the model's inputs. `ModelFacts` has its program,
shapes, folders, and preprocessors by the names of Optimum Neuron; it runs nothing.
"""

from __future__ import annotations

import copy
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..errors import ConfigError, ModelError
from ..exporters import Prepared, describe, public_facts, save_folder
from ..files.atomic import WorkFolder
from ..options.configuration import CompileConfig, is_export
from ..options.option import check_known
from ..runtime import Copies, LoadedProgram, rest_threads
from ..sources import TOKENIZER, ModelSource, read_typed
from .checks import HostCallable
from .module_interface import ModuleInterface
from .program import CompiledProgram
from .weights import Weights, rebound

if TYPE_CHECKING:
    from ..simulator import Estimate

_ESTIMATE_HELP = "`optimum-cli neuron estimate --help`"

_TOKENIZER_FILE = "tokenizer_config.json"
_PREPROCESSORS = {
    "AutoTokenizer": (_TOKENIZER_FILE, "tokenizer.json"),
    "AutoProcessor": ("preprocessor_config.json", "processor_config.json"),
}
"""transformers' class to the files it reads, of which a folder has one."""


class ModelFacts:
    """Properties of a compiled model; `CompiledModel` adds the methods."""

    prepared: Prepared
    neuron_config: CompileConfig
    loaded: LoadedProgram
    _saved_in: Path | None
    """Folder with the current state of the model."""
    _temporary: WorkFolder | None = None
    """`model_save_dir` of a model that was not saved."""

    @functools.cached_property
    def model(self) -> CompiledProgram:
        """The compiled program as a function of tensors of compiled shapes, without padding or generation."""
        return CompiledProgram(self.loaded)

    @property
    def input_static_shapes(self) -> dict[str, int | list[int]]:
        """Compiled size or sizes of each axis, for example `{"batch_size": 1}`."""
        shapes: dict[str, int | list[int]] = self.neuron_config.static_shapes
        return shapes

    @property
    def is_weights_neff_separated(self) -> bool:
        """Whether weights are stored outside the NEFF; `replace_weights` works in both cases."""
        return not self.neuron_config.inline_weights_to_neff

    @property
    def source_folder(self) -> Path:
        """Folder of the weights, with the model's tokenizer."""
        return self.prepared.source.folder

    @property
    def model_save_dir(self) -> Path:
        """The exported folder of the model.

        A model that was not saved is written to a temporary folder first, which is deleted with the model.
        """
        if self._saved_in is None:
            self._temporary = WorkFolder()
            save_folder(self.prepared, self._temporary.path)
            self._saved_in = self._temporary.path
        return self._saved_in

    @functools.cached_property
    def preprocessors(self) -> list[Any]:
        """Tokenizer and processor of the model's folder; empty if it has neither."""
        folder = self.source_folder
        parts: dict[type, Any] = {}
        for name, files in _PREPROCESSORS.items():
            if any((folder / file).is_file() for file in files):
                part = load_preprocessor(name, folder)
                parts.setdefault(type(part), part)
        return list(parts.values())


def with_facts(source: ModelSource, config: CompileConfig) -> Any:
    """Return a copy of a model's transformers configuration with the facts of a compile under `neuron`."""
    model_config = copy.deepcopy(source.config)
    model_config.neuron = public_facts(config, model_config.model_type, source.random_weights)
    return model_config


def load_preprocessor(auto_class: str, folder: Path, *, hint: str = "Copy its files from the checkpoint.") -> Any:
    """Load a tokenizer or processor by its auto class; the error's `hint` says how to do without the files."""
    import transformers

    if (folder / _TOKENIZER_FILE).is_file():
        read_typed(folder / _TOKENIZER_FILE, TOKENIZER)
    try:
        return getattr(transformers, auto_class).from_pretrained(folder)
    except Exception as error:  # the tokenizers library raises plain `Exception`
        part = " ".join(re.findall("[A-Z][a-z]+", auto_class)[1:]).lower()
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        message = f"The {part} of {folder} cannot be read ({reason})."
        raise ModelError(message, hint=hint, model=str(folder), auto_class=auto_class) from error


class CompiledModel(HostCallable, ModelFacts, ModuleInterface):
    """A program with its weights on a simulated core; subclasses add `forward`."""

    def __init__(self, prepared: Prepared) -> None:
        assert prepared.loaded is not None, "a model needs weights"
        self.prepared = prepared
        self.config = with_facts(prepared.source, prepared.config)
        self.neuron_config = prepared.config
        self.loaded: LoadedProgram = prepared.loaded
        self.copies = Copies([prepared.loaded])
        self._saved_in = prepared.source.folder.resolve() if is_export(prepared.source.folder) else None
        rest_threads()  # loading had many; whoever calls the model may be another thread

    def __repr__(self) -> str:
        config = self.neuron_config
        shapes = [f"{axis}={size}" for axis, size in self.input_static_shapes.items()]
        facts = [self.prepared.source.name, config.task, *shapes, f"simulated {config.target}"]
        return f"{type(self).__name__}({', '.join(facts)})"

    def save_pretrained(self, save_directory: str | Path, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Save the model as an exported folder, for `from_pretrained` and the command line."""
        if not push_to_hub:
            check_known(kwargs, ["save_directory", "push_to_hub"], what="save_pretrained")
        save_folder(self.prepared, Path(save_directory))
        self._saved_in = Path(save_directory).resolve()
        if push_to_hub:
            self.push_to_hub(save_directory, **kwargs)

    def push_to_hub(
        self,
        save_directory: str | Path,
        repository_id: str | None = None,
        private: bool | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        commit_message: str = "Upload exported model",
    ) -> str:
        """Upload the model to the Hub and return the URL of the commit.

        Args:
            save_directory: folder to upload; the model is saved there first if it has changed since. Without
                `repository_id`, this is the repository, as in transformers, and `model_save_dir` is uploaded.
            repository_id: repository on the Hub, which is created if needed.
            private: whether a new repository is private.
            revision: branch to write to.
            token: Hub token; None uses the login's.
            commit_message: message of the commit.
        """
        from huggingface_hub import HfApi

        if repository_id is None:
            if Path(save_directory).exists():
                message = f"push_to_hub({str(save_directory)!r}) names a folder and no repository."
                raise ConfigError(message, hint='Pass repository_id="org/name".', option="repository_id")
            save_directory, repository_id = self.model_save_dir, str(save_directory)
        if Path(save_directory).resolve() != self._saved_in:
            self.save_pretrained(save_directory)
        api = HfApi(token=token)
        api.create_repo(repository_id, private=private, exist_ok=True)
        return api.upload_folder(
            repo_id=repository_id, folder_path=save_directory, revision=revision, commit_message=commit_message
        )

    def replace_weights(self, weights: Weights) -> None:
        """Replace the weights of every replica by others of the same architecture, without compiling.

        Args:
            weights: Folder with safetensors, Hub model ID, state dict, or transformers model; names as in the
                checkpoint. Later changes of tensors in memory do not reach the compiled model.

        Example:
            ```python no-run
            model.replace_weights("fine_tuned")  # or fine_tuned_model.state_dict()
            ```
        """
        self.prepared = rebound(self.prepared, self.copies, weights)
        if (program := self.__dict__.get("model")) is not None:
            program.reset()
        self._saved_in = None

    def close(self) -> None:
        """Free the cores, the HBM, and the threads of the model; later calls raise `CoreBusyError`.

        Without `close`, they are freed with the last reference to the model. Repeated calls do nothing.

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
        """Wait until the host code that is compiled in the background is ready; the next call uses it.

        Args:
            timeout_s: timeout in seconds; None waits without limit.

        Returns:
            Whether the code is ready.
        """
        assert self.prepared.host is not None
        return self.prepared.host.wait(timeout_s)

    def describe(self) -> dict[str, Any]:
        """Return every automatic choice with its reason, memory, validation, and timings as plain data."""
        return describe(self.prepared)

    def estimate(self, *, instance: str | None = None, price: float | None = None, **request: object) -> Estimate:
        """Estimate latency, throughput, memory, and cost on an instance (simulated).

        Args:
            instance: instance type or family; None uses the one of the compile.
            price: US dollars per hour of the instance; None uses the published on-demand price.
            **request: lengths, `concurrency`, `data_parallel_size`, `requests_per_s`, and the options of speculation
                of `optimum_neuron.simulator.estimate`; other shapes are fixed by the compile.
        """
        from ..simulator import estimate_program, keywords_of_compiled

        known = keywords_of_compiled("decoder", "encoder-decoder", "single-pass")
        check_known(request, known, what="the estimate of a compiled model", listed=_ESTIMATE_HELP)
        return estimate_program(
            self.prepared.program,
            self.neuron_config,
            name=self.prepared.source.name,
            instance=instance or self.neuron_config.instance_type,
            price=price,
            **request,
        )
