"""Plans of tensor parallelism by architecture, as data: names of modules, with `*` for layers, to styles.

Names are those of transformers' modules, from the base model on. Inference takes the styles as they are
(`parallel.py`), training as placements of DTensor (`distributed/plans.py`). Architectures that are not here have the
plan that transformers ships with them (`base_model_tp_plan`), if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Plan = Mapping[str, str]
"""Module path to style."""

_BERT = {
    "encoder.layer.*.attention.self.query": "heads",
    "encoder.layer.*.attention.self.key": "heads",
    "encoder.layer.*.attention.self.value": "heads",
    "encoder.layer.*.attention.output.dense": "from_heads",
    "encoder.layer.*.intermediate.dense": "columns",
    "encoder.layer.*.output.dense": "rows",
}
_DISTILBERT = {
    "transformer.layer.*.attention.q_lin": "heads",
    "transformer.layer.*.attention.k_lin": "heads",
    "transformer.layer.*.attention.v_lin": "heads",
    "transformer.layer.*.attention.out_lin": "from_heads",
    "transformer.layer.*.ffn.lin1": "columns",
    "transformer.layer.*.ffn.lin2": "rows",
}


def _attention(path: str, out: str) -> dict[str, str]:
    heads = {f"{path}.{name}_proj": "heads" for name in "qkv"}
    return {**heads, f"{path}.{out}": "from_heads"}


_VIT = {
    **_attention("layers.*.attention", "o_proj"),
    "layers.*.mlp.fc1": "columns",
    "layers.*.mlp.fc2": "rows",
}
_OPT = {
    **_attention("decoder.layers.*.self_attn", "out_proj"),
    "decoder.layers.*.fc1": "columns",
    "decoder.layers.*.fc2": "rows",
}
_BART = {
    **_OPT,
    **_attention("decoder.layers.*.encoder_attn", "out_proj"),
    **_attention("encoder.layers.*.self_attn", "out_proj"),
    "encoder.layers.*.fc1": "columns",
    "encoder.layers.*.fc2": "rows",
}
_T5 = {
    f"{stack}.block.*.layer.*.{module}": style
    for stack in ("encoder", "decoder")
    for module, style in {
        **{f"{kind}Attention.{name}": "heads" for kind in ("Self", "EncDec") for name in "qkv"},
        **{f"{kind}Attention.o": "from_heads" for kind in ("Self", "EncDec")},
        "SelfAttention.relative_attention_bias": "bias_of_heads",
        "DenseReluDense.wi": "columns",
        "DenseReluDense.wi_0": "columns",
        "DenseReluDense.wi_1": "columns",
        "DenseReluDense.wo": "rows",
    }.items()
}
_GPT2 = {
    "h.*.attn.c_attn": "packed_heads",
    "h.*.attn.c_proj": "from_heads",
    "h.*.mlp.c_fc": "columns",
    "h.*.mlp.c_proj": "rows",
}
_GPTJ = {
    **_attention("h.*.attn", "out_proj"),
    "h.*.mlp.fc_in": "columns",
    "h.*.mlp.fc_out": "rows",
}
_PHI = {
    **_attention("layers.*.self_attn", "dense"),
    "layers.*.mlp.fc1": "columns",
    "layers.*.mlp.fc2": "rows",
}
_STABLELM = {
    **_attention("layers.*.self_attn", "o_proj"),
    "layers.*.self_attn.q_layernorm": "a norm for each head",
    "layers.*.mlp.gate_proj": "columns",
    "layers.*.mlp.up_proj": "columns",
    "layers.*.mlp.down_proj": "rows",
}
_NEOX_MLP = {"mlp.dense_h_to_4h": "columns", "mlp.dense_4h_to_h": "rows"}
_NEOX = {
    "layers.*.attention.query_key_value": "grouped_heads",
    "layers.*.attention.dense": "from_heads",
    **{f"layers.*.{name}": style for name, style in _NEOX_MLP.items()},
}
_BLOOM = {
    "h.*.self_attention": "alibi",
    "h.*.self_attention.query_key_value": "grouped_heads",
    "h.*.self_attention.dense": "from_heads",
    **{f"h.*.{name}": style for name, style in _NEOX_MLP.items()},
}
_MPT = {
    "blocks.*.attn": "alibi",
    "blocks.*.attn.Wqkv": "packed_heads",
    "blocks.*.attn.out_proj": "from_heads",
    "blocks.*.ffn.up_proj": "columns",
    "blocks.*.ffn.down_proj": "rows",
}

PLANS: Mapping[str, Plan] = {
    "bart": _BART,
    "bert": _BERT,
    "bloom": _BLOOM,
    "camembert": _BERT,
    "distilbert": _DISTILBERT,
    "electra": _BERT,
    "falcon": _BLOOM,
    "gpt2": _GPT2,
    "gpt_neox": _NEOX,
    "gptj": _GPTJ,
    "m2m_100": _BART,
    "marian": _BART,
    "mbart": _BART,
    "mpt": _MPT,
    "mt5": _T5,
    "opt": _OPT,
    "pegasus": _BART,
    "phi": _PHI,
    "roberta": _BERT,
    "stablelm": _STABLELM,
    "t5": _T5,
    "vit": _VIT,
    "whisper": _BART,
    "xlm-roberta": _BERT,
}
"""By `model_type`."""


def pattern_of(path: str) -> str:
    """Return the pattern of a module's path, with `*` for the numbers of layers.

    >>> pattern_of("model.layers.3.mlp.down")
    'model.layers.*.mlp.down'
    """
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", path)


_OF_DIFFUSION = {
    **{projection: "heads" for name in "qkv" for projection in (f"to_{name}", f"add_{name}_proj")},
    "to_out.0": "from_heads",
    "to_add_out": "from_heads",
    "ff.net.0.proj": "columns",
    "ff.net.2": "rows",
    "ff_context.net.0.proj": "columns",
    "ff_context.net.2": "rows",
    "proj_mlp": "columns",
}
"""Ends of paths in the blocks of a diffusion transformer, which diffusers names alike in all of them."""


def diffusion_plan(paths: Iterable[str]) -> Plan:
    """Return the plan of a diffusion transformer with modules at these paths; empty if it has no such blocks.

    >>> diffusion_plan(["transformer_blocks.0.attn.to_q", "transformer_blocks.0.norm1", "proj_out"])
    {'transformer_blocks.0.attn.to_q': 'heads'}
    """
    plan = {}
    for path in paths:
        if path.startswith("single_transformer_blocks.") and path.endswith(".proj_out"):
            plan[path] = "rows_beside_heads"
        elif "transformer_blocks." in path:
            plan.update((path, style) for end, style in _OF_DIFFUSION.items() if path.endswith(f".{end}"))
    return plan
