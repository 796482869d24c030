"""`optimum.neuron`, the import name that existing scripts use, as a thin re-export of `optimum_neuron`.

It holds no code of its own: every public name is looked up in `optimum_neuron` on first use, so importing it is as
light as importing that package. It refuses to be imported where the vendor's `optimum-neuron` is installed, because
both own this file and whichever was installed last has overwritten the other.

    from optimum.neuron import NeuronModelForCausalLM
"""

from __future__ import annotations

from typing import Any

import optimum_neuron
from optimum_neuron.errors import nearest
from optimum_neuron.vendor import refuse_beside

refuse_beside("optimum-neuron", __name__)

__all__ = list(optimum_neuron.__all__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{nearest(name, __all__)}")
    return getattr(optimum_neuron, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
