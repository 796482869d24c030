"""`optimum.neuron`, the import name that existing scripts use, as a thin re-export of `optimum_neuron`.

It holds no code of its own: every public name is looked up in `optimum_neuron` on first use, so importing it is as
light as importing that package. It refuses to be imported where the vendor's `optimum-neuron` is installed, because
both own this file and whichever was installed last has overwritten the other.

    from optimum.neuron import NeuronModelForCausalLM
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

import optimum_neuron
from optimum_neuron.errors import nearest, refusal

_VENDOR_DISTRIBUTION = "optimum-neuron"


def _refuse_beside_vendor() -> None:
    try:
        version = importlib.metadata.version(_VENDOR_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return
    raise ImportError(
        refusal(
            asked="import optimum.neuron",
            found=f"optimum-neuron-sim-sdk and the vendor's {_VENDOR_DISTRIBUTION} {version} are both installed",
            why="both distributions own the files of optimum/neuron, so one has overwritten the other",
            do="for the simulator, `pip uninstall optimum-neuron optimum-neuron-sim-sdk`, then `pip install "
            "optimum-neuron-sim-sdk`; for the hardware, uninstall both, then `pip install optimum-neuron` (the "
            "simulator stays importable as `optimum_neuron`)",
        ),
        name=__name__,
    )


_refuse_beside_vendor()

__all__ = list(optimum_neuron.__all__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{nearest(name, __all__)}")
    return getattr(optimum_neuron, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
