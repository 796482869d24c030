"""Encoders: export with shapes and compiler arguments, call, and read the result, one class after the other."""

import torch
from optimum.neuron import (
    NeuronModelForFeatureExtraction,
    NeuronModelForMaskedLM,
    NeuronModelForMultipleChoice,
    NeuronModelForQuestionAnswering,
    NeuronModelForSequenceClassification,
    NeuronModelForTokenClassification,
)
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

compiler_args = {"auto_cast": "matmul", "auto_cast_type": "bf16"}
input_shapes = {"batch_size": 1, "sequence_length": 64}
rounded = {"atol": 3e-2, "rtol": 3e-2}
exact = {"atol": 1e-4, "rtol": 1e-4}

# Feature extraction, rounded to bfloat16 as the compiler arguments say.
tokenizer = AutoTokenizer.from_pretrained("acme/bert")
model = NeuronModelForFeatureExtraction.from_pretrained("acme/bert", export=True, **input_shapes, **compiler_args)
inputs = tokenizer("a play about letters and forgiveness.", return_tensors="pt")
with torch.no_grad():
    expected = AutoModel.from_pretrained("acme/bert")(**inputs)
last_hidden_state = model(**inputs).last_hidden_state
assert list(last_hidden_state.shape) == [1, inputs["input_ids"].shape[1], 32]
torch.testing.assert_close(last_hidden_state, expected.last_hidden_state, **rounded)
assert not torch.equal(last_hidden_state, expected.last_hidden_state)

# Masked words.
tokenizer = AutoTokenizer.from_pretrained("acme/bert-masked")
model = NeuronModelForMaskedLM.from_pretrained("acme/bert-masked", export=True, **input_shapes)
inputs = tokenizer(f"this is a {tokenizer.mask_token} case.", return_tensors="pt")
logits = model(**inputs).logits
with torch.no_grad():
    expected = AutoModelForMaskedLM.from_pretrained("acme/bert-masked")(**inputs).logits
masked = (inputs["input_ids"] == tokenizer.mask_token_id)[0].nonzero().item()
assert tokenizer.decode(logits[0, masked].argmax()) == tokenizer.decode(expected[0, masked].argmax())
torch.testing.assert_close(logits, expected, **exact)

# Questions, with the loss of a known answer.
tokenizer = AutoTokenizer.from_pretrained("acme/bert-squad")
model = NeuronModelForQuestionAnswering.from_pretrained("acme/bert-squad", export=True, **input_shapes)
question, text = "are there wheelchair spaces?", "yes, near every exit."
inputs = tokenizer(question, text, return_tensors="pt")
known = {"start_positions": torch.tensor([1]), "end_positions": torch.tensor([3])}
outputs = model(**inputs, **known)
with torch.no_grad():
    expected = AutoModelForQuestionAnswering.from_pretrained("acme/bert-squad")(**inputs, **known)
torch.testing.assert_close(outputs.loss, expected.loss, **exact)
torch.testing.assert_close(outputs.start_logits, expected.start_logits, **exact)
torch.testing.assert_close(outputs.end_logits, expected.end_logits, **exact)

# Sentiment, and the label of the best class.
tokenizer = AutoTokenizer.from_pretrained("acme/bert-sentiment")
model = NeuronModelForSequenceClassification.from_pretrained("acme/bert-sentiment", export=True, **input_shapes)
inputs = tokenizer("the musical was a joy to see.", return_tensors="pt")
logits = model(**inputs).logits
original = AutoModelForSequenceClassification.from_pretrained("acme/bert-sentiment")
with torch.no_grad():
    expected = original(**inputs).logits
assert model.config.id2label[logits.argmax().item()] == original.config.id2label[expected.argmax().item()]
torch.testing.assert_close(logits, expected, **exact)

# Names of entities.
tokenizer = AutoTokenizer.from_pretrained("acme/bert-ner")
model = NeuronModelForTokenClassification.from_pretrained("acme/bert-ner", export=True, **input_shapes)
inputs = tokenizer("the musical opened in new york.", return_tensors="pt")
with torch.no_grad():
    expected = AutoModelForTokenClassification.from_pretrained("acme/bert-ner")(**inputs).logits
torch.testing.assert_close(model(**inputs).logits, expected, **exact)

# The best of four endings, of a model with an additional axis.
num_choices = 4
tokenizer = AutoTokenizer.from_pretrained("acme/bert-swag")
model = NeuronModelForMultipleChoice.from_pretrained(
    "acme/bert-swag", export=True, num_choices=num_choices, **input_shapes
)
prompts = ["a band walks down the street."] * num_choices
endings = ["it plays.", "it sleeps in the sun.", "it turns into a pumpkin.", "it goes home."]
encoded = tokenizer(prompts, endings, truncation=True, padding=True)
for name, rows in encoded.items():
    encoded[name] = [rows[i : i + num_choices] for i in range(0, len(rows), num_choices)]
inputs = dict(encoded.convert_to_tensors(tensor_type="pt"))
logits = model(**inputs).logits
with torch.no_grad():
    expected = AutoModelForMultipleChoice.from_pretrained("acme/bert-swag")(**inputs).logits
assert logits.shape == (1, num_choices) and logits.argmax() == expected.argmax()
torch.testing.assert_close(logits, expected, **exact)
