"""Exported models: save, load, upload, other weights, any batch size, more results, and the compile cache."""

import os

import huggingface_hub
import torch
from optimum.exporters.neuron import main_export
from optimum.neuron import NeuronConfig, NeuronModelForCausalLM, NeuronModelForSequenceClassification
from optimum.neuron.cache import get_hub_cached_entries
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model_id, tuned_id = "acme/bert-sentiment", "acme/bert-sentiment-tuned"
input_shapes = {"batch_size": 1, "sequence_length": 64}
compiler_args = {"auto_cast": "none", "optlevel": "1", "instance_type": "trn1"}
exact = {"atol": 1e-4, "rtol": 1e-4}
tokenizer = AutoTokenizer.from_pretrained(model_id)
inputs = tokenizer("a joy to see.", return_tensors="pt")
original = AutoModelForSequenceClassification.from_pretrained(model_id)
tuned = AutoModelForSequenceClassification.from_pretrained(tuned_id)
with torch.no_grad():
    expected, expected_tuned = original(**inputs).logits, tuned(**inputs).logits

# Save and load.
model = NeuronModelForSequenceClassification.from_pretrained(
    model_id, export=True, compiler_workdir="work", **input_shapes, **compiler_args
)
assert os.listdir("work") == ["graph.neff"]
model.save_pretrained("sentiment_neuron")
tokenizer.save_pretrained("sentiment_neuron")
model = NeuronModelForSequenceClassification.from_pretrained("sentiment_neuron")
torch.testing.assert_close(model(**inputs).logits, expected, **exact)
assert model.input_static_shapes == input_shapes and model.neuron_config.target == "trn1"

# Upload, which the test answers in place of the Hub.
uploaded = {}
huggingface_hub.HfApi.create_repo = lambda self, repo_id, **options: None
huggingface_hub.HfApi.upload_folder = lambda self, *, folder_path, repo_id, **options: (
    uploaded.update({repo_id: set(os.listdir(folder_path))}) or f"https://huggingface.co/{repo_id}"
)
model.push_to_hub("sentiment_uploaded", repository_id="me/sentiment-neuron")
llm = NeuronModelForCausalLM.from_pretrained("acme/llama", export=True, batch_size=1, sequence_length=128)
llm.push_to_hub("llama_uploaded", "me/llama-neuron", private=True)
assert NeuronConfig.from_pretrained("llama_uploaded") == llm.neuron_config
assert all({"model.neuron", "config.json"} <= names for names in uploaded.values()) and len(uploaded) == 2

# Other weights, of a checkpoint, a model, or a state dict; the program stays.
separated = {"inline_weights_to_neff": False, **input_shapes}
for weights in (tuned_id, tuned, tuned.state_dict()):
    model = NeuronModelForSequenceClassification.from_pretrained(model_id, export=True, **separated)
    model.replace_weights(weights=weights)
    torch.testing.assert_close(model(**inputs).logits, expected_tuned, **exact)

# Another checkpoint of one configuration finds the program in the cache, unless it is disabled.
model = NeuronModelForSequenceClassification.from_pretrained(tuned_id, export=True, **separated)
assert model.describe()["cache"]["value"] == "hit"
torch.testing.assert_close(model(**inputs).logits, expected_tuned, **exact)
model = NeuronModelForSequenceClassification.from_pretrained(
    model_id, export=True, disable_neuron_cache=True, **separated
)
assert model.describe()["cache"]["value"] != "hit"

# Any number of rows, hidden states, and attentions.
options = {"dynamic_batch_size": True, "output_hidden_states": True, "output_attentions": True}
model = NeuronModelForSequenceClassification.from_pretrained(model_id, export=True, **input_shapes, **options)
batch = tokenizer(["a joy.", "no.", "so so."], return_tensors="pt", padding=True)
outputs = model(**batch)
with torch.no_grad():
    reference = original.eval()(**batch, output_hidden_states=True)
assert outputs.logits.shape == (3, 3) and len(outputs.attentions) == 2
torch.testing.assert_close(outputs.logits, reference.logits, **exact)
torch.testing.assert_close(outputs.hidden_states[-1], reference.hidden_states[-1], **exact)

# The export without a class.
options = {"task": "text-classification", "torch_dtype": "float32", "do_validation": False}
main_export(model_id, output="exported", compiler_kwargs=compiler_args, **options, **input_shapes)
model = NeuronModelForSequenceClassification.from_pretrained("exported")
torch.testing.assert_close(model(**inputs).logits, expected, **exact)

# Configurations that are compiled for a model.
entries = get_hub_cached_entries(model_id, task="text-classification")
assert {(entry["task"], entry["sequence_length"]) for entry in entries} == {("text-classification", 64)}
