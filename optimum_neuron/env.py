"""The only place that reads environment variables.

Each variable is one row of `VARIABLES`; `docs/environment_variables.md` is checked against it. A value
that cannot be used raises `ConfigError` instead of being ignored.

    >>> from optimum_neuron import env
    >>> env.compile_cache_url({"NEURON_COMPILE_CACHE_URL": "/tmp/neffs"})
    '/tmp/neffs'
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from .errors import ConfigError, nearest, refusal

VARIABLES: dict[str, str] = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1 silences progress bars, as everywhere in the Hugging Face libraries",
    "LOCAL_RANK": "number of this process on its machine, which torchrun sets: its simulated core",
    "LOCAL_WORLD_SIZE": "processes of a launch on its machine, which torchrun sets: all machines must have as many",
    "NEURON_COMPILE_CACHE_URL": "where compiled NEFFs are kept: a folder or an fsspec URL such as s3://bucket/neffs",
    "NEURON_PLATFORM_TARGET_OVERRIDE": "target when none is given: inf2, trn1, trn1n, trn2, trn3",
    "NEURON_PROCESS_TAG": "name of this process in neuron-top and neuron-monitor (default: its id)",
    "NEURON_RT_NUM_CORES": "how many simulated cores this process claims (0: all)",
    "NEURON_RT_STOCHASTIC_ROUNDING_EN": "1 rounds what the device writes to 16-bit floats stochastically",
    "NEURON_RT_STOCHASTIC_ROUNDING_SEED": "seed of that rounding (default: 0)",
    "NEURON_RT_VALIDATE_HASH": "0 skips the check of weight hashes when an exported folder is loaded",
    "NEURON_RT_VISIBLE_CORES": 'which simulated cores this process may claim, for example "0" or "0-3,6"',
    "OPTIMUM_NEURON_ADAPTIVE_EAGER": "1 queues operators of the torch device and runs them in another thread",
    "OPTIMUM_NEURON_AUTO_CAST_TYPE": "matmul operands in emulated numerics: bf16, fp16, tf32, fp8_e4m3 or none",
    "OPTIMUM_NEURON_DEBUG": "1 shows tracebacks of known errors on the command line",
    "OPTIMUM_NEURON_HOME": "root of this package's own caches (default: ~/.cache/optimum_neuron)",
    "OPTIMUM_NEURON_INSTANCE": "instance type to simulate, for example inf2.xlarge",
    "OPTIMUM_NEURON_NUMERICS": "arithmetic of the torch device: reference (the host's) or emulated (the chip's)",
}
"""Every variable read, with its meaning."""

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


def _flag(name: str, default: bool, environ: Mapping[str, str]) -> bool:
    text = environ.get(name)
    if text is None:
        return default
    if text.strip().lower() in _TRUE:
        return True
    if text.strip().lower() in _FALSE:
        return False
    raise ConfigError(
        refusal(
            asked=f"{name}={text}",
            found="not a yes-or-no value",
            why="the variable is a switch",
            do=f"set {name} to 1 or 0, or unset it",
        )
    )


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """Root folder of this package's caches."""
    default = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "optimum_neuron"
    return Path(environ.get("OPTIMUM_NEURON_HOME") or default)


def make_home(environ: Mapping[str, str] = os.environ) -> None:
    """Make the root folder, so that no other user may write it; host code is not loaded from one that others may write.

    Whoever writes below it calls this first. Where it cannot be made, what is written next says so.
    """
    with contextlib.suppress(OSError):
        home(environ).mkdir(mode=0o700, parents=True, exist_ok=True)


def compile_cache_url(environ: Mapping[str, str] = os.environ) -> str:
    """Where NEFFs are cached: a local path or an fsspec URL."""
    return environ.get("NEURON_COMPILE_CACHE_URL") or str(home(environ) / "neff")


def debug(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the command line shows tracebacks of known errors."""
    return _flag("OPTIMUM_NEURON_DEBUG", False, environ)


def validate_hash(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether weight hashes are verified at load."""
    return _flag("NEURON_RT_VALIDATE_HASH", True, environ)


def progress_disabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether progress bars are switched off."""
    return _flag("HF_HUB_DISABLE_PROGRESS_BARS", False, environ)


def platform_target(environ: Mapping[str, str] = os.environ) -> str | None:
    """Target named by the environment, unchecked, or None."""
    return environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or None


def process_tag(environ: Mapping[str, str] = os.environ) -> str | None:
    """What tools call this process, or None."""
    return environ.get("NEURON_PROCESS_TAG") or None


def instance_type(environ: Mapping[str, str] = os.environ) -> str | None:
    """Instance named by the environment, unchecked, or None."""
    return environ.get("OPTIMUM_NEURON_INSTANCE") or None


def simulate_instance(name: str) -> None:
    """Simulate an instance in this process and those that it starts, as if its shell had named it."""
    os.environ["OPTIMUM_NEURON_INSTANCE"] = name


def _count(name: str, what: str, do: str, environ: Mapping[str, str]) -> int | None:
    text = environ.get(name)
    if text is None or text == "":
        return None
    if not text.isdecimal():
        raise ConfigError(refusal(asked=f"{name}={text}", found="not a whole number", why=what, do=do))
    return int(text)


def _name(name: str, names: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    text = environ.get(name)
    if text is None or text == "":
        return None
    if text not in names:
        raise ConfigError(
            refusal(
                asked=f"{name}={text}",
                found=f"no such value{nearest(text, names)}",
                why=VARIABLES[name],
                do=f"set it to {' or '.join(names)}",
            )
        )
    return text


def num_cores(environ: Mapping[str, str] = os.environ) -> int | None:
    """How many cores to claim; None when not set, 0 for all."""
    return _count("NEURON_RT_NUM_CORES", "it counts cores", "set it to 0 (all) or a number of cores", environ)


def local_rank(environ: Mapping[str, str] = os.environ) -> int | None:
    """Number of this process on its machine; None where no launcher set it."""
    return _count("LOCAL_RANK", "it numbers processes from 0", "let torchrun set it", environ)


def local_world_size(environ: Mapping[str, str] = os.environ) -> int | None:
    """How many processes this machine has of a launch; None where no launcher set it."""
    return _count("LOCAL_WORLD_SIZE", "it counts processes", "let torchrun set it", environ)


def numerics(environ: Mapping[str, str] = os.environ) -> str | None:
    """Arithmetic of the torch device: "reference", "emulated", or None."""
    return _name("OPTIMUM_NEURON_NUMERICS", ("reference", "emulated"), environ)


def auto_cast_type(environ: Mapping[str, str] = os.environ) -> str | None:
    """Rounding of matmul operands in emulated numerics, or None."""
    return _name("OPTIMUM_NEURON_AUTO_CAST_TYPE", ("bf16", "fp16", "tf32", "fp8_e4m3", "none"), environ)


def adaptive_eager(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether operators of the torch device are queued."""
    return _flag("OPTIMUM_NEURON_ADAPTIVE_EAGER", False, environ)


def stochastic_rounding(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether writes to 16-bit floats are rounded stochastically."""
    return _flag("NEURON_RT_STOCHASTIC_ROUNDING_EN", False, environ)


def stochastic_rounding_seed(environ: Mapping[str, str] = os.environ) -> int:
    """Seed of stochastic rounding."""
    name = "NEURON_RT_STOCHASTIC_ROUNDING_SEED"
    return _count(name, "it is a seed", "set it to a whole number, or unset it", environ) or 0


def visible_cores(environ: Mapping[str, str] = os.environ) -> tuple[int, ...] | None:
    """Core ids this process may claim, in order, or None for all.

    Example:
        ```python
        from optimum_neuron.env import visible_cores

        assert visible_cores({"NEURON_RT_VISIBLE_CORES": "0-2,5"}) == (0, 1, 2, 5)
        ```
    """
    text = environ.get("NEURON_RT_VISIBLE_CORES")
    if text is None or text.strip() == "":
        return None
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise ConfigError(
                refusal(
                    asked=f"NEURON_RT_VISIBLE_CORES={text}",
                    found=f"'{part}' is no core or range",
                    why="cores are listed as ids and ranges",
                    do='write it like "0", "0-3" or "0,2"',
                )
            )
        cores += range(int(first), int(last or first) + 1)
    if len(set(cores)) != len(cores):
        raise ConfigError(
            refusal(
                asked=f"NEURON_RT_VISIBLE_CORES={text}",
                found="a core is named twice",
                why="a core is claimed once",
                do="name each core once",
            )
        )
    return tuple(cores)
