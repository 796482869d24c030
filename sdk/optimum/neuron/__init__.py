"""`optimum.neuron`, the import name that existing scripts use, as a front door to `optimum_neuron`.

Names are looked up on first use, so importing it is as light as importing that package. Most modules have no file:
`_names.py` has the table. It refuses to be imported if the vendor's `optimum-neuron` is installed, because both own
this file and the last one installed has overwritten the other.

    from optimum.neuron import NeuronModelForCausalLM
"""

from optimum_neuron.base.vendor import refuse_beside

refuse_beside("optimum-neuron", __name__)

from optimum.neuron._names import NAMES  # noqa: E402

from optimum_neuron.base.doors import open_doors  # noqa: E402

__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
