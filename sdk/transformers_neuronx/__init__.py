"""`transformers_neuronx`, the vendor's older library for language models, as a front door to
`optimum_neuron.transformers_neuronx`.

    from transformers_neuronx import LlamaForSampling, NeuronConfig
"""

from optimum_neuron.base.doors import Missing, Names, open_doors
from optimum_neuron.base.vendor import refuse_beside

refuse_beside("transformers-neuronx", __name__)


def _ours(*names: str) -> dict[str, str]:
    return {name: f"optimum_neuron.transformers_neuronx:{name}" for name in names}


_CONFIGS = _ours(
    *("ContinuousBatchingConfig", "GQA", "GenerationConfig", "KVCacheQuantizationConfig", "Layout", "NeuronConfig"),
    *("QuantizationConfig", "SparseAttnConfig"),
)
_ADAPTER = _ours("HuggingFaceGenerationModelAdapter")
_AUTO = _ours("NeuronAutoModelForCausalLM")
_SPLIT = _ours("save_pretrained_split")
_FAMILIES = {
    "bloom": _ours("BloomForSampling"),
    "gpt2": {
        **_ours("GPT2ForHuggingFaceSampling", "GPT2ForSampling", "GPT2ForSamplingWithContextBroadcasting"),
    },
    "gptj": _ours("GPTJForSampling"),
    "gptneox": _ours("GPTNeoXForSampling"),
    "llama": {
        **_ours("LlamaForSampling"),
        "FIDLlamaForSampling": Missing("Use LlamaForSampling, and join the passages in one prompt."),
    },
    "mistral": _ours("MistralForSampling"),
    "mixtral": _ours("MixtralForSampling"),
    "opt": _ours("OPTForGreedySearch", "OPTForSampling"),
    "qwen2": _ours("Qwen2ForSampling"),
    "qwen3": _ours("Qwen3ForSampling"),
}
_EAGLE = Missing("Use FusedSpeculativeDecoder, which takes an EAGLE draft too: its candidates are one sequence.")
_TREE = Missing("Use SpeculativeGenerator, whose candidates are one sequence.")
_SPARSE = Missing("Use a checkpoint whose own layers have a sliding window.")

NAMES: Names = {
    "transformers_neuronx": {
        **_CONFIGS,
        **_ADAPTER,
        **_AUTO,
        **{name: row for rows in _FAMILIES.values() for name, row in rows.items()},
        "__version__": "optimum_neuron.version:__version__",
    },
    **{f"transformers_neuronx.{family}": {} for family in _FAMILIES},
    **{f"transformers_neuronx.{family}.model": rows for family, rows in _FAMILIES.items()},
    "transformers_neuronx.base": _ours("NeuronModelBase"),
    "transformers_neuronx.config": _CONFIGS,
    "transformers_neuronx.constants": _ours("GQA", "Layout"),
    "transformers_neuronx.eagle_speculation": {"EagleSpeculativeDecoder": _EAGLE},
    "transformers_neuronx.fused_speculation": _ours("FusedSpeculativeDecoder"),
    "transformers_neuronx.generation_utils": _ADAPTER,
    "transformers_neuronx.modeling_auto": _AUTO,
    "transformers_neuronx.module": _SPLIT,
    "transformers_neuronx.sparse_attn_utils": {
        "BlkSparseAttnConfig": _SPARSE,
        "SlidingWindowAttnConfig": _SPARSE,
        **_ours("SparseAttnConfig"),
    },
    "transformers_neuronx.speculation": {
        **_ours("DefaultTokenAcceptor", "GreedyTokenAcceptor", "SpeculativeGenerator"),
        "DraftModelForSpeculation": Missing("Pass the draft itself to SpeculativeGenerator."),
        "TreeSpeculativeGenerator": _TREE,
    },
    "transformers_neuronx.stopping_criteria": {
        name: f"transformers:{name}" for name in ("MaxTimeCriteria", "StoppingCriteria", "StoppingCriteriaList")
    },
}

__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
