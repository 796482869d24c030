"""The only place that reads environment variables.

Each variable is one row of `variables.TABLE`; `docs/environment_variables.md` is checked against it. `env_text.py`
parses the text and raises `ConfigError` for a value that cannot be used.

    >>> from optimum_neuron.base import env
    >>> env.compile_cache_url({"NEURON_COMPILE_CACHE_URL": "/tmp/neffs"})
    '/tmp/neffs'
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from .env_text import choice, compiler_flag, compiler_words, core_list, number, sizes, switch
from .variables import TABLE

VARIABLES: dict[str, str] = {name: row.meaning for name, row in TABLE.items() if row.honored}
"""Every variable read, with its meaning."""

_WRAPPER_SWITCHES = ("--no_cache", "--retry_failed_compilation")
"""Words of NEURON_CC_FLAGS for the cache around the compiler, other than --cache_dir."""

LOG_LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "WARNING": 30, "ERROR": 40}
"""Values of NEURON_RT_LOG_LEVEL, with the numbers of Python's logging."""

FOR_SCRIPTS = ("NEURON_EXTRACT_GRAPHS_ONLY", "NEURON_PARALLEL_COMPILE")
"""Variables of `neuron_parallel_compile`, which training scripts read too, to shorten their run."""


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """Root folder of this package's caches."""
    default = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "optimum_neuron"
    return Path(environ.get("OPTIMUM_NEURON_HOME") or default)


def make_home(environ: Mapping[str, str] = os.environ) -> None:
    """Make the root folder, so that no other user may write it; host code is not loaded from one that others may write.

    Whoever writes below it calls this first. If it cannot be created, the next write reports it.
    """
    with contextlib.suppress(OSError):
        home(environ).mkdir(mode=0o700, parents=True, exist_ok=True)


def nki_platform(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the target of NKI kernels that NEURON_PLATFORM_TARGET_OVERRIDE names, as a family or generation."""
    name = environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or None
    return {"gen2": "trn1", "gen3": "trn2", "gen4": "trn3"}.get(name or "", name)


def nki_precise(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether NKI kernels round to their dtypes; NKI_PRECISE_FP=0 keeps all floats in float32."""
    return switch("NKI_PRECISE_FP", environ, default=True)


def nki_platform_rules(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether NKI kernels are refused that the hardware's compiler does not take."""
    return switch("OPTIMUM_NEURON_NKI_PLATFORM_RULES", environ, default=False)


def compile_cache_url(environ: Mapping[str, str] = os.environ) -> str:
    """Folder or fsspec URL of the NEFF cache; --cache_dir in NEURON_CC_FLAGS has precedence."""
    url = compiler_flag("--cache_dir", environ) or environ.get("NEURON_COMPILE_CACHE_URL")
    return url or str(home(environ) / "neff")


def hf_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Root folder of the Hugging Face libraries, where Optimum Neuron too keeps the name of a chosen cache."""
    default = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(environ.get("HF_HOME") or default).expanduser()


def custom_cache_repo(environ: Mapping[str, str] = os.environ) -> str | None:
    """Shared compile cache named by the environment, unchecked, or None."""
    return environ.get("CUSTOM_CACHE_REPO") or None


def num_recent_models(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return how many graphs of the device xla a process keeps loaded; None for all."""
    return number("NEURON_NUM_RECENT_MODELS_TO_KEEP", environ, hint="Set it to a number from 1, or unset it.")


def xla_downcast(environ: Mapping[str, str] = os.environ) -> int:
    """Return how floats of the device xla are rounded: 0 not, 1 all to bfloat16, 2 each to half its size."""
    if switch("XLA_USE_BF16", environ, default=False):
        return 1
    return 2 if switch("XLA_DOWNCAST_BF16", environ, default=False) else 0


def extracts_graphs(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether graphs of the device xla are compiled and not run, so that their results are zeros."""
    return switch("NEURON_EXTRACT_GRAPHS_ONLY", environ, default=False)


def xla_debug_level(environ: Mapping[str, str] = os.environ) -> int:
    """Return what is said of graphs of the device xla: 0 nothing, 1 compiles, 2 runs too."""
    level = number("PT_XLA_DEBUG_LEVEL", environ, hint="Set it to 0, 1, or 2, or unset it.")
    if level is not None:
        return level
    return 2 if switch("PT_XLA_DEBUG", environ, default=False) else 0


def xla_debug_file(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the file that PT_XLA_DEBUG writes to; None for stderr."""
    return environ.get("PT_XLA_DEBUG_FILE") or None


def nxd_cpu_mode(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether neuronx_distributed trains on the CPU, without the device xla."""
    return switch("NXD_CPU_MODE", environ, default=False)


def no_compile_cache(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether NEURON_CC_FLAGS has --no_cache: everything is compiled again, and nothing is kept."""
    return "--no_cache" in compiler_words(environ)


def compiler_flags(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the words of NEURON_CC_FLAGS for the compiler, without those for the cache around it."""
    words, flags = iter(compiler_words(environ)), []
    for word in words:
        if word == "--cache_dir":
            next(words, None)
        elif not word.startswith("--cache_dir=") and word not in _WRAPPER_SWITCHES:
            flags.append(word)
    return tuple(flags)


def compiler_target(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the --target of NEURON_CC_FLAGS, unchecked, or None."""
    return compiler_flag("--target", environ)


def debug(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the command line shows tracebacks of known errors."""
    return switch("OPTIMUM_NEURON_DEBUG", environ, default=False)


def api_key(environ: Mapping[str, str] = os.environ) -> str | None:
    """Key that requests to a server must have, or None."""
    return environ.get("OPTIMUM_NEURON_API_KEY") or None


def vllm_api_key(environ: Mapping[str, str] = os.environ) -> str | None:
    """Key that requests to vLLM's server must have, or None."""
    return environ.get("VLLM_API_KEY") or None


def server_words(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the words of the command line that the variables SM_ON_* stand for: SM_ON_PORT=80 is --port 80.

    An empty value is a switch.
    """
    prefix = "SM_ON_*".removesuffix("*")
    given = [(name.removeprefix(prefix).lower(), environ[name]) for name in sorted(environ) if name.startswith(prefix)]
    return [word for name, value in given for word in (f"--{name}", value) if word]


def validate_hash(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether weight hashes are verified at load."""
    return switch("NEURON_RT_VALIDATE_HASH", environ, default=True)


def progress_disabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether progress bars are switched off."""
    return switch("HF_HUB_DISABLE_PROGRESS_BARS", environ, default=False)


def silence_progress() -> None:
    """Switch progress bars off in this process and its children."""
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def platform_target(environ: Mapping[str, str] = os.environ) -> str | None:
    """Target named by the environment, unchecked, or None."""
    return environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or None


def compile_records(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Folder in which processes record the graphs that they compile or find, or None."""
    folder = environ.get("OPTIMUM_NEURON_COMPILE_RECORDS")
    return Path(folder) if folder else None


def recording_compiles(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment of a process that records compiles in `folder`, with the variables that training scripts read."""
    return {**environ, "OPTIMUM_NEURON_COMPILE_RECORDS": str(folder), **dict.fromkeys(FOR_SCRIPTS, "1")}


def process_tag(environ: Mapping[str, str] = os.environ) -> str | None:
    """Name of this process in tools, or None."""
    return environ.get("NEURON_PROCESS_TAG") or None


def instance_type(environ: Mapping[str, str] = os.environ) -> str | None:
    """Instance named by the environment, unchecked, or None."""
    return environ.get("OPTIMUM_NEURON_INSTANCE") or None


def machine_variables(environ: Mapping[str, str] = os.environ) -> tuple[str | None, ...]:
    """Values of all variables that decide the simulated instance and the cores that this process may use."""
    return tuple(map(environ.get, _MACHINE))


_MACHINE = (
    *("OPTIMUM_NEURON_INSTANCE", "NEURON_PLATFORM_TARGET_OVERRIDE", "NEURON_CC_FLAGS", "NEURON_LOGICAL_NC_CONFIG"),
    *("NEURON_RT_VIRTUAL_CORE_SIZE", "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"),
)


def simulate_instance(name: str) -> None:
    """Simulate an instance in this process and its children, as if the shell had set it."""
    os.environ["OPTIMUM_NEURON_INSTANCE"] = name


@contextlib.contextmanager
def inherited(variables: Mapping[str, str]) -> Iterator[None]:
    """Let processes that are started meanwhile begin with these variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def num_cores(environ: Mapping[str, str] = os.environ) -> int | None:
    """Number of cores to claim; None when not set, 0 for all."""
    return number("NEURON_RT_NUM_CORES", environ, hint="Set it to 0 (all) or a number of cores.")


def local_rank(environ: Mapping[str, str] = os.environ) -> int | None:
    """Number of this process on its machine; None where no launcher set it."""
    return number("LOCAL_RANK", environ, hint="Let torchrun set it.")


def local_world_size(environ: Mapping[str, str] = os.environ) -> int | None:
    """Number of a launch's processes on this machine; None where no launcher set it."""
    return number("LOCAL_WORLD_SIZE", environ, hint="Let torchrun set it.")


def rank(environ: Mapping[str, str] = os.environ) -> int | None:
    """Number of this process among all of a run; None where no launcher set it."""
    return number("RANK", environ, hint="Let torchrun set it.")


def world_size(environ: Mapping[str, str] = os.environ) -> int | None:
    """Number of a run's processes; None where no launcher set it."""
    return number("WORLD_SIZE", environ, hint="Let torchrun set it.")


def master_address(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the address of a run's first machine; None where no launcher set it."""
    return environ.get("MASTER_ADDR") or None


def num_spawned(environ: Mapping[str, str] = os.environ) -> int:
    """Number of processes that `xmp.spawn` starts on this machine."""
    return number("NEURONCORE_NUM_DEVICES", environ, hint="Set it to a number of cores.") or 1


def gradient_bucket_mb(environ: Mapping[str, str] = os.environ) -> int:
    """Size in MiB of the buckets in which `xm.reduce_gradients` sums gradients; 0 for one bucket of all."""
    size = number("ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB", environ, hint="Set it to a number of MiB, or to 0.")
    return 50 if size is None else size


def always_all_reduces(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether `xm.all_reduce` does its work in a single process too."""
    return switch("XLA_ALWAYS_ALLREDUCE", environ, default=False)


def xla(environ: Mapping[str, str] = os.environ) -> bool | None:
    """Return whether libraries see `torch_xla`; None: only after the user's script has imported it."""
    if environ.get("OPTIMUM_NEURON_XLA"):
        return switch("OPTIMUM_NEURON_XLA", environ, default=False)
    return True if environ.get("PJRT_DEVICE") == "NEURON" else None


def vllm(environ: Mapping[str, str] = os.environ) -> bool | None:
    """Return whether every package can import `vllm` (True) or none (False); None: scripts can, and libraries not."""
    return switch("OPTIMUM_NEURON_VLLM", environ, default=False) if environ.get("OPTIMUM_NEURON_VLLM") else None


def check_vllm_framework(environ: Mapping[str, str] = os.environ) -> None:
    """Check the library that vLLM's scripts choose; all of them are the engine here."""
    choice("VLLM_NEURON_FRAMEWORK", ("neuronx-distributed-inference", "transformers-neuronx"), environ)


def vllm_quant_dtype(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the dtype of vLLM's quantization "neuron_quant", or None."""
    return choice("NEURON_QUANT_DTYPE", ("s8", "f8e4m3fn"), environ)


VLLM_BUCKETS = {"prefill_buckets": "NEURON_CONTEXT_LENGTH_BUCKETS", "decode_buckets": "NEURON_TOKEN_GEN_BUCKETS"}


def vllm_buckets(environ: Mapping[str, str] = os.environ) -> dict[str, tuple[int, ...]]:
    """Return the buckets that vLLM's scripts set, by the option of the export."""
    return {option: tuple(sorted(sizes(name, environ))) for option, name in VLLM_BUCKETS.items() if environ.get(name)}


def compiled_artifacts(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of vLLM's compiled model, or None."""
    folder = environ.get("NEURON_COMPILED_ARTIFACTS")
    return Path(folder) if folder else None


def on_device_sampling_disabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether vLLM's host reads all logits."""
    return switch("NEURON_ON_DEVICE_SAMPLING_DISABLED", environ, default=False)


def variable(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return a variable that a script or another library's name asks for, such as NXD_LOG_LEVEL."""
    return environ.get(name)


def numerics(environ: Mapping[str, str] = os.environ) -> str | None:
    """Arithmetic of the torch device: "reference", "emulated", or None."""
    return choice("OPTIMUM_NEURON_NUMERICS", ("reference", "emulated"), environ)


def auto_cast_type(environ: Mapping[str, str] = os.environ) -> str | None:
    """Rounding of matmul operands in emulated numerics, or None."""
    return choice("OPTIMUM_NEURON_AUTO_CAST_TYPE", ("bf16", "fp16", "tf32", "fp8_e4m3", "none"), environ)


def adaptive_eager(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether operators of the torch device are queued."""
    return switch("OPTIMUM_NEURON_ADAPTIVE_EAGER", environ, default=False)


def stochastic_rounding(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether writes to 16-bit floats are rounded stochastically."""
    return switch("NEURON_RT_STOCHASTIC_ROUNDING_EN", environ, default=False)


def stochastic_rounding_seed(environ: Mapping[str, str] = os.environ) -> int:
    """Seed of stochastic rounding."""
    return number("NEURON_RT_STOCHASTIC_ROUNDING_SEED", environ, hint="Set it to a whole number, or unset it.") or 0


def logical_nc_config(environ: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Return the number of physical cores in a logical one that each variable, or flag of NEURON_CC_FLAGS, sets."""
    variables = {name: environ.get(name) for name in ("NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_VIRTUAL_CORE_SIZE")}
    flags = ("--logical-nc-config", "--lnc", "-lnc")
    texts = variables | {f"NEURON_CC_FLAGS={flag}": compiler_flag(flag, environ) for flag in flags}
    sizes = {name: text for name, text in texts.items() if text}
    return {name: number(name, sizes, hint="Set it to 1 or 2, or remove it.") or 0 for name in sizes}


def log_level(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the level of this package's log, as a number of Python's logging; None leaves it to the program."""
    upper = {"NEURON_RT_LOG_LEVEL": environ.get("NEURON_RT_LOG_LEVEL", "").upper()}
    name = choice("NEURON_RT_LOG_LEVEL", tuple(LOG_LEVELS), upper)
    return None if name is None else LOG_LEVELS[name]


def log_location(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return where this package's log goes: "CONSOLE", "SYSLOG", or None, which leaves it to the program."""
    upper = {"NEURON_RT_LOG_LOCATION": environ.get("NEURON_RT_LOG_LOCATION", "").upper()}
    return choice("NEURON_RT_LOG_LOCATION", ("CONSOLE", "SYSLOG"), upper)


def inspect_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder for profiles of whole processes; None where NEURON_RT_INSPECT_ENABLE is not set."""
    enabled = switch("NEURON_RT_INSPECT_ENABLE", environ, default=False)
    return Path(environ.get("NEURON_RT_INSPECT_OUTPUT_DIR") or "output") if enabled else None


def visible_cores(environ: Mapping[str, str] = os.environ) -> tuple[int, ...] | None:
    """Core ids this process may claim, in order, or None for all.

    >>> visible_cores({"NEURON_RT_VISIBLE_CORES": "0-2,5"})
    (0, 1, 2, 5)
    """
    return core_list("NEURON_RT_VISIBLE_CORES", environ)


def group_sizes(environ: Mapping[str, str] = os.environ) -> tuple[int, ...] | None:
    """Return the sizes of groups of cores, or None where there are no groups.

    >>> group_sizes({"NEURONCORE_GROUP_SIZES": "3,4,1"})
    (3, 4, 1)
    """
    return sizes("NEURONCORE_GROUP_SIZES", environ) or None


def given(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that are set and read here, verbatim."""
    return {name: environ[name] for name in VARIABLES if environ.get(name)}
