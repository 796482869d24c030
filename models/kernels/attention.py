"""Flash attention, forward and backward: causal, for query heads in groups that share key heads.

The kernels are part of the package, because `NeuronConfig(attention_kernel="nki")` compiles decoders with them:
`optimum_neuron/nki/kernels`. `optimum_neuron.nki.kernels.attention` is the operator of PyTorch, with autograd.
"""

from __future__ import annotations

from optimum_neuron.nki.kernels import flash_attention, flash_attention_backward

__all__ = ["flash_attention", "flash_attention_backward"]
