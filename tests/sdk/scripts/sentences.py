"""Vectors of sentences: of a sentence-transformers folder, and of a decoder that embeds."""

import torch
from optimum.neuron import NeuronModelForEmbedding, NeuronSentenceTransformers
from transformers import AutoModel, AutoTokenizer

input_shapes = {"batch_size": 1, "sequence_length": 64}
compiler_args = {"auto_cast": "none", "auto_cast_type": "bf16"}
exact = {"atol": 1e-4, "rtol": 1e-4}
text = "a letter from the sea."


def normalized(vectors):
    return torch.nn.functional.normalize(vectors, dim=-1)


tokenizer = AutoTokenizer.from_pretrained("acme/minilm")
model = NeuronSentenceTransformers.from_pretrained("acme/minilm", export=True, **input_shapes, **compiler_args)
model.save_pretrained("minilm_neuron")
model = NeuronSentenceTransformers.from_pretrained("minilm_neuron")
inputs = tokenizer(text, return_tensors="pt")
outputs = model(**inputs)
with torch.no_grad():
    hidden = AutoModel.from_pretrained("acme/minilm")(**inputs).last_hidden_state
torch.testing.assert_close(outputs.token_embeddings, hidden, **exact)
torch.testing.assert_close(outputs.sentence_embedding, normalized(hidden.mean(1)), **exact)

tokenizer = AutoTokenizer.from_pretrained("acme/qwen3")
model = NeuronModelForEmbedding.from_pretrained("acme/qwen3", export=True, **input_shapes)
inputs = tokenizer(text, return_tensors="pt")
with torch.no_grad():
    hidden = AutoModel.from_pretrained("acme/qwen3", dtype=torch.float32)(**inputs).last_hidden_state
torch.testing.assert_close(model(**inputs), hidden[:, -1:], **exact)
vectors = model.encode([text] if isinstance(text, str) else text, convert_to_tensor=True)
torch.testing.assert_close(vectors, normalized(hidden[:, -1]), **exact)
