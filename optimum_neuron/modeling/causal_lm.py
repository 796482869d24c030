"""`NeuronModelForCausalLM`: a compiled decoder behind transformers' generation interface.

`decoder.py` has the parts it shares with vision-language models. It does not depend on compiling: `loading.py` does
that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..upstream.cache_argument import takes_cache
from .cache import NeuronCache
from .checks import refuse_outputs
from .decoder import NeuronDecoderModel
from .registration import register


@register
class NeuronModelForCausalLM(NeuronDecoderModel):
    """A decoder compiled for a simulated NeuronCore.

    Example:
        ```python no-run
        from transformers import AutoTokenizer
        from optimum_neuron import NeuronModelForCausalLM

        model = NeuronModelForCausalLM.from_pretrained("smollm2", export=True, sequence_length=512)
        tokenizer = AutoTokenizer.from_pretrained(model.source_folder)
        ids = tokenizer("The capital of France is", return_tensors="pt")
        print(tokenizer.decode(model.generate(**ids, max_new_tokens=8)[0]))
        ```
    """

    task = "text-generation"
    input_modalities = ("text",)

    @takes_cache
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cache: NeuronCache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        adapter_names: Sequence[str] | None = None,
    ) -> CausalLMOutputWithPast | tuple[torch.Tensor, ...]:
        """Run the compiled program; arguments and result are transformers'.

        Args:
            input_ids: token IDs [batch, new tokens]; any batch size.
            attention_mask: 1 for real tokens, [batch, all tokens]; padding may be on either side.
            position_ids: must be the running count of `attention_mask`, the default.
            cache: the cache that an earlier call returned.
            labels: token IDs to compute the loss of, -100 to skip.
            use_cache: return the cache; the default is the configuration's.
            logits_to_keep: number of last positions to return logits of, or a tensor of positions; 0 means all.
            output_attentions: not supported.
            output_hidden_states: not supported.
            return_dict: False returns a tuple.
            adapter_names: LoRA adapter of each row, "__base__" for the base model; None: the active one.

        Raises:
            ShapeError: the sequence is longer than compiled, a token is not in the vocabulary, or positions are not
                the running count.
            ConfigError: an output is requested that the graph does not return, or an adapter is not loaded.
        """
        refuse_outputs(output_attentions, output_hidden_states)
        mask, cache = self._checked_mask(input_ids, attention_mask, cache)
        result = self._logits_and_loss(
            input_ids, mask, position_ids, cache, labels, logits_to_keep, adapter_names=adapter_names
        )
        return self._output(result, cache, use_cache, return_dict)
