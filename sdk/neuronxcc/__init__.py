"""`neuronxcc`, the vendor's name for the compiler: the names of its NKI kernels that scripts import.

It refuses to be imported where the vendor's `neuronx-cc` is installed, because both own this file.
"""

from optimum_neuron.base.vendor import refuse_beside

refuse_beside("neuronx-cc", __name__)
