"""Classes and functions of modeling files that are recognized by name, because a static graph needs other code there.

transformers' modeling files promise no stable names. A class that is renamed would run its original code, which fails
to compile or gives a slower graph, so `tests/upstream` holds each name.
"""

from __future__ import annotations

from .contract import ClassName

_MODELS = "transformers.models"
_ROUTING = "The shapes of its experts depend on routing."
_COMPLEX = "Rotary positions are complex numbers."
_STATE = "Its state is outside of the cache."
_SCAN = "A recurrence starts from the state of a cache and skips padding."

DBRX_EXPERTS = ClassName(target=f"{_MODELS}.dbrx.modeling_dbrx.DbrxExperts", why=_ROUTING)
LONGCAT_EXPERTS = ClassName(target=f"{_MODELS}.longcat_flash.modeling_longcat_flash.LongcatFlashExperts", why=_ROUTING)
JETMOE_ROUTER = ClassName(target=f"{_MODELS}.jetmoe.modeling_jetmoe.JetMoeTopKGating", why=_ROUTING)
JETMOE_EXPERTS = ClassName(target=f"{_MODELS}.jetmoe.modeling_jetmoe.JetMoeParallelExperts", why=_ROUTING)
DEEPSEEK_V2_ROTARY = ClassName(
    target=f"{_MODELS}.deepseek_v2.modeling_deepseek_v2.DeepseekV2RotaryEmbedding", why=_COMPLEX
)
LLAMA4_ROTARY = ClassName(target=f"{_MODELS}.llama4.modeling_llama4.Llama4TextRotaryEmbedding", why=_COMPLEX)
DEEPSEEK_V2_ROTATION = ClassName(target=f"{_MODELS}.deepseek_v2.modeling_deepseek_v2.apply_rotary_emb", why=_COMPLEX)
LLAMA4_EXPERTS = ClassName(
    target=f"{_MODELS}.llama4.modeling_llama4.Llama4TextExperts", why="Every expert gets every token, and no routing."
)
LLAMA4_ROTATION = ClassName(target=f"{_MODELS}.llama4.modeling_llama4.apply_rotary_emb", why=_COMPLEX)
LLAMA4_VISION_ROTATION = ClassName(target=f"{_MODELS}.llama4.modeling_llama4.vision_apply_rotary_emb", why=_COMPLEX)
GPT = ClassName(target=f"{_MODELS}.openai.modeling_openai.OpenAIGPTLMHeadModel", why="It has no cache.")
ROFORMER_ATTENTION = ClassName(
    target=f"{_MODELS}.roformer.modeling_roformer.RoFormerSelfAttention", why="It has one position for all sequences."
)
XMOD_OUTPUT = ClassName(
    target=f"{_MODELS}.xmod.modeling_xmod.XmodOutput", why="Its shapes depend on the language of a sequence."
)
GRIFFIN_BLOCK = ClassName(
    target=f"{_MODELS}.recurrent_gemma.modeling_recurrent_gemma.RecurrentGemmaRecurrentBlock", why=_STATE
)
GRIFFIN_SCAN = ClassName(
    target=f"{_MODELS}.recurrent_gemma.modeling_recurrent_gemma.RecurrentGemmaRglru._rnn_scan", why=_STATE
)
LIGHTNING_ATTENTION = ClassName(target=f"{_MODELS}.minimax.modeling_minimax.MiniMaxLightningAttention", why=_STATE)
MINIMAX_CACHE = ClassName(
    target=f"{_MODELS}.minimax.modeling_minimax.MiniMaxCache", why="MiniMax accepts no other class of cache."
)
ZAYA_PROJECTION = ClassName(target=f"{_MODELS}.zaya.modeling_zaya.ZayaCCAProjection", why="Its state keeps padding.")
RWKV_ATTENTION = ClassName(target=f"{_MODELS}.rwkv.modeling_rwkv.RwkvSelfAttention", why=_STATE)
RWKV_FEED_FORWARD = ClassName(target=f"{_MODELS}.rwkv.modeling_rwkv.RwkvFeedForward", why=_STATE)
GPT_NEO_ATTENTION = ClassName(
    target=f"{_MODELS}.gpt_neo.modeling_gpt_neo.GPTNeoSelfAttention", why="Its own mask ends at the last slot."
)
SELECTIVE_SCAN = ClassName(target=f"{_MODELS}.mamba.modeling_mamba.mamba_selective_scan", why=_SCAN)
STATE_SPACE_SCAN = ClassName(target=f"{_MODELS}.mamba2.modeling_mamba2.mamba2_chunk_scan", why=_SCAN)
DELTA_RULE = ClassName(target=f"{_MODELS}.qwen3_next.modeling_qwen3_next.torch_chunk_gated_delta_rule", why=_SCAN)
KIMI_DELTA_RULE = ClassName(target=f"{_MODELS}.kimi_linear.modeling_kimi_linear.chunk_kimi_delta_attention", why=_SCAN)
ALIBI = ClassName(
    target=f"{_MODELS}.bloom.modeling_bloom.build_alibi_tensor", why="The bias of a slot of the cache is its index."
)
CONV1D = ClassName(target="transformers.pytorch_utils.Conv1D", why="Its weight is stored as [inputs, outputs].")

ROWS = tuple(value for value in tuple(globals().values()) if isinstance(value, ClassName))
