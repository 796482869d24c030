"""Decoders: configuration, export and reload in steps, the export in one call, sampling, chats, and pipelines."""

import torch
from optimum.neuron import NeuronModelForCausalLM
from optimum.neuron.pipelines import pipeline
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    StoppingCriteriaList,
    StopStringCriteria,
    set_seed,
)

model_id = "acme/llama"
tokenizer = AutoTokenizer.from_pretrained(model_id)
original = AutoModelForCausalLM.from_pretrained(model_id, dtype=torch.float32)
inputs = tokenizer("my favorite place is", return_tensors="pt")
greedy = {"do_sample": False, "max_new_tokens": 8}
expected = original.generate(**inputs, **greedy)

# In steps: a configuration, a compiled model, a folder, the model again.
neuron_config = NeuronModelForCausalLM.get_neuron_config(
    model_id, batch_size=1, sequence_length=128, tensor_parallel_size=1, instance_type="inf2"
)
neuron_model = NeuronModelForCausalLM.export(model_id, neuron_config=neuron_config, load_weights=False)
neuron_model.save_pretrained("llama_neuron")
tokenizer.save_pretrained("llama_neuron")
model = NeuronModelForCausalLM.from_pretrained("llama_neuron")
assert torch.equal(model.generate(**inputs, **greedy), expected)
assert (model.neuron_config.batch_size, model.neuron_config.sequence_length) == (1, 128)

# Sampling, with options by name and as a configuration; the seed decides, here and there.
options = {"do_sample": True, "max_length": 40, "min_length": 30, "temperature": 0.7, "top_k": 50, "top_p": 0.9}
set_seed(0)
with torch.inference_mode():
    sampled = model.generate(**inputs, **options)
set_seed(0)
assert torch.equal(sampled, original.generate(**inputs, **options)) and sampled.shape[1] > 29
config = GenerationConfig(max_new_tokens=60, do_sample=False)
criteria = StoppingCriteriaList([StopStringCriteria(tokenizer, tokenizer.decode(expected[0, -1]))])
stopped = model.generate(**inputs, generation_config=config, stopping_criteria=criteria)
assert torch.equal(stopped, original.generate(**inputs, generation_config=config, stopping_criteria=criteria))
assert stopped.shape[1] <= expected.shape[1]

# In one call, with two prompts at once; shorter ones are padded on the left.
compiler_args = {"num_cores": 1, "auto_cast_type": "bf16"}
input_shapes = {"batch_size": 2, "sequence_length": 128}
model = NeuronModelForCausalLM.from_pretrained(model_id, export=True, **compiler_args, **input_shapes)
batch = tokenizer(["one", "a longer prompt"], return_tensors="pt", padding=True)
outputs = model.generate(**batch, **greedy)
assert torch.equal(outputs, original.generate(**batch, **greedy))

# Pipelines: of an exported folder, of a checkpoint, and of a chat.
generator = pipeline("text-generation", "llama_neuron")
text = tokenizer.decode(expected[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
assert generator("my favorite place is", return_full_text=False, **greedy) == [{"generated_text": text}]
generator = pipeline("text-generation", model=model_id, export=True, batch_size=1, sequence_length=128)
assert generator("my favorite place is", return_full_text=False, **greedy) == [{"generated_text": text}]
chat = [{"role": "user", "content": "hi"}]
prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
answer = generator(chat, **greedy)[0]["generated_text"][-1]["content"]
ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
expected = original.generate(**ids, **greedy)[0, ids["input_ids"].shape[1] :]
assert answer == tokenizer.decode(expected, skip_special_tokens=True)
