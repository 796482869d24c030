"""transformers' pipelines over compiled models, with the model named by a path.

    from optimum_neuron import pipeline
    chat = pipeline("text-generation", "smollm2", export=True, sequence_length=512)
    print(chat("The capital of France is"))

`names.py` has the names, and why some pipelines cannot be built. `factory.py` loads model and processors and hands them
to transformers; `question_answering.py` and `text_to_text.py` are pipelines that transformers 5 removed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
