"""transformers' pipelines over compiled models, with the model named by a path.

    from optimum_neuron import pipeline
    chat = pipeline("text-generation", "smollm2", export=True, sequence_length=512)
    print(chat("The capital of France is"))

`factory.py` loads model and processors and hands them to transformers; `question_answering.py` and `text_to_text.py`
are pipelines that transformers 5 has no more.
"""

from __future__ import annotations

from .factory import pipeline

__all__ = ["pipeline"]
