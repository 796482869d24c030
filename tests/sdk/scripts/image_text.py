"""Images and text: a chat with an image, in steps and as a pipeline."""

import numpy as np
import torch
from optimum.neuron import NeuronModelForImageTextToText, pipeline
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

model_id = "acme/smolvlm"
image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 28, 3), dtype=np.uint8))
messages = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "what?"}]}]
greedy = {"do_sample": False, "max_new_tokens": 6}

processor = AutoProcessor.from_pretrained(model_id)
neuron_config = NeuronModelForImageTextToText.get_neuron_config(model_id, batch_size=1, sequence_length=64)
model = NeuronModelForImageTextToText.export(model_id, neuron_config=neuron_config, load_weights=True)
inputs = processor.apply_chat_template(
    messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
)
outputs = model.generate(**inputs, **greedy)
original = AutoModelForImageTextToText.from_pretrained(model_id, dtype=torch.float32)
expected = original.generate(**inputs, **greedy)
assert processor.batch_decode(outputs) == processor.batch_decode(expected)

model.save_pretrained("smolvlm_neuron")
processor.save_pretrained("smolvlm_neuron")
answer = pipeline("image-text-to-text", "smolvlm_neuron")(text=messages, return_full_text=False, **greedy)
text = processor.decode(expected[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
assert answer[0]["generated_text"] == text
