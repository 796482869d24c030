"""Modules of `neuronx_distributed` without a counterpart here, see `__init__.py`.

Any name of theirs can be imported, and its use is an error with the alternative.
"""

from optimum_neuron.base.doors import OTHERS, Missing, Names

_ALTERNATIVES = {
    "experimental.quantization.microscaling": "Quantize weights to int8 or float8.",
    "kernels.kernel_utils": "Call kernels with torch tensors; neuronx_distributed.kernels.flash_attn is one.",
    "lightning.launcher": "Start the ranks with torchrun.",
    "modules.lora.layer": "Use LoraConfig and LoraModel, which replace the layers.",
    "modules.lora.tp_layer": "Use LoraConfig and LoraModel, which replace the parallel layers too.",
    "modules.moe.moe_fused_tkg": "Use MoE, which also computes single tokens.",
    "modules.moe.moe_fused_tkg_mx": "Use MoE with int8 or float8 experts.",
    "modules.moe.moe_process_group": "Use initialize_model_parallel, which makes the groups of experts.",
    "modules.moe.nki_import": "Import nki.",
    "modules.qkv_linear_utils": "Use GQAQKVColumnParallelLinear.",
    "optimizer.convert_zero_checkpoints": "Save without ZeRO-1's shards, or load with the same degrees.",
    "optimizer.zero_dcp_utils": "Use save_checkpoint and load_checkpoint.",
    "parallel_layers.comm": "Use the functions of parallel_layers.mappings, or torch.distributed.",
    "parallel_layers.layers_utils": "Use the layers of parallel_layers.layers.",
    "pipeline.comm": "Use NxDPPModel, whose stages exchange tensors.",
    "pipeline.manual_pipe_stage": "Use NxDPPModel with pipeline_cuts.",
    "pipeline.partition": "Use NxDPPModel, which divides the model at pipeline_cuts.",
    "scripts.checkpoint_converter": "Use save_checkpoint and load_checkpoint; nxd.shard_checkpoint divides weights.",
    "scripts.yaml_converter": "Run optimum-cli neuron train --config FILE.",
    "trace.nxd_model.utils": "Use NxDModel.",
    "trace.spmd": "Use NxDModel.",
    "trainer.checkpoint_storage": "Pass a folder to save_checkpoint and load_checkpoint.",
    "utils.medusa_utils": "Export a decoder with Medusa heads: NeuronModelForCausalLM.",
    "utils.safetensors_utils": "Save with safetensors.torch.save_model.",
    "utils.sampling": "Use neuronx_distributed_inference.modules.generation.sampling.",
}
_PACKAGES = ("experimental", "experimental.quantization", "scripts")

NAMES: Names = {
    **{f"neuronx_distributed.{name}": {} for name in _PACKAGES},
    **{f"neuronx_distributed.{name}": {OTHERS: Missing(text)} for name, text in _ALTERNATIVES.items()},
}
