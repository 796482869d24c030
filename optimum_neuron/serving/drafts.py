"""The draft that all requests of a served decoder have: it proposes tokens, which a check of the model accepts or not.

settings = load_draft(model, kind="lookup", model=None, num_candidates=3)
manager.add_request(ids, **settings)
"""

from __future__ import annotations

from typing import Any

from ..errors import invalid_choice
from ..modeling import EagleDraft, MedusaHeads, NeuronModelForCausalLM


def load_draft(target: Any, *, kind: str, model: str | None, num_candidates: int) -> dict[str, Any]:
    """Return the keywords of requests with a draft.

    Args:
        target: the compiled model.
        kind: "assistant", a smaller decoder; "eagle"; "medusa"; or "lookup", tokens that followed the newest earlier.
        model: folder or Hub model ID of the draft, except for "lookup".
        num_candidates: tokens that it proposes at once.
    """
    if kind == "lookup":
        return {"prompt_lookup_num_tokens": num_candidates}
    assert model is not None, "every other kind is a model"
    if kind == "eagle":
        return {"assistant_model": EagleDraft.from_pretrained(model, target, num_candidates=num_candidates)}
    if kind == "medusa":
        return {"assistant_model": MedusaHeads.from_pretrained(model, target)}
    if kind != "assistant":
        raise invalid_choice("kind", kind, ("assistant", "eagle", "medusa", "lookup"))
    config = target.neuron_config
    options = {"batch_size": 1, "sequence_length": config.sequence_length, "torch_dtype": config.torch_dtype}
    draft = NeuronModelForCausalLM.from_pretrained(
        model, export=True, instance_type=config.instance_type, disable_validation=True, **options
    )
    draft.generation_config.num_assistant_tokens = num_candidates
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    return {"assistant_model": draft}
