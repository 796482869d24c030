"""Images: classes, segments, objects, and words for images."""

import numpy as np
import torch
from optimum.neuron import (
    NeuronCLIPModel,
    NeuronModelForImageClassification,
    NeuronModelForObjectDetection,
    NeuronModelForSemanticSegmentation,
)
from PIL import Image
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    AutoModelForObjectDetection,
    AutoModelForSemanticSegmentation,
    AutoProcessor,
    CLIPModel,
)

image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8))
exact = {"atol": 1e-4, "rtol": 1e-4}

# The class of an image.
preprocessor = AutoImageProcessor.from_pretrained("acme/vit")
model = NeuronModelForImageClassification.from_pretrained("acme/vit", export=True, batch_size=1)
inputs = preprocessor(images=image, return_tensors="pt")
logits = model(**inputs).logits
original = AutoModelForImageClassification.from_pretrained("acme/vit")
with torch.no_grad():
    expected = original(**inputs).logits
assert model.config.id2label[logits.argmax(-1).item()] == original.config.id2label[expected.argmax(-1).item()]
torch.testing.assert_close(logits, expected, **exact)

# A class for each pixel; the model's folder names no size, so the export does.
preprocessor = AutoImageProcessor.from_pretrained("acme/segformer")
model = NeuronModelForSemanticSegmentation.from_pretrained(
    "acme/segformer", export=True, batch_size=1, num_channels=3, height=64, width=64
)
inputs = preprocessor(images=image, return_tensors="pt")
outputs = model(**inputs)
with torch.no_grad():
    expected = AutoModelForSemanticSegmentation.from_pretrained("acme/segformer")(**inputs)
torch.testing.assert_close(outputs.logits, expected.logits, **exact)
sizes = [image.size[::-1]]
segments, expected_segments = (
    preprocessor.post_process_semantic_segmentation(o, target_sizes=sizes)[0] for o in (outputs, expected)
)
assert segments.shape == (48, 64) and (segments == expected_segments).float().mean() > 0.99

# Objects with boxes.
preprocessor = AutoImageProcessor.from_pretrained("acme/yolos")
model = NeuronModelForObjectDetection.from_pretrained("acme/yolos", export=True, batch_size=1)
inputs = preprocessor(images=image, return_tensors="pt")
outputs = model(**inputs)
original = AutoModelForObjectDetection.from_pretrained("acme/yolos")
with torch.no_grad():
    expected = original(pixel_values=inputs["pixel_values"])
sizes = torch.tensor([image.size[::-1]])
found, expected_found = (
    preprocessor.post_process_object_detection(o, threshold=0.0, target_sizes=sizes)[0] for o in (outputs, expected)
)
assert len(found["labels"]) and torch.equal(found["labels"], expected_found["labels"])
torch.testing.assert_close(found["boxes"], expected_found["boxes"], atol=1e-2, rtol=1e-3)

# Text that matches an image.
input_shapes = {"text_batch_size": 2, "sequence_length": 16, "image_batch_size": 1}
input_shapes |= {"num_channels": 3, "width": 32, "height": 32}
processor = AutoProcessor.from_pretrained("acme/clip")
model = NeuronCLIPModel.from_pretrained("acme/clip", export=True, **input_shapes)
inputs = processor(text=["a cat", "a big dog"], images=image, return_tensors="pt", padding=True)
outputs = model(**inputs)
with torch.no_grad():
    expected = CLIPModel.from_pretrained("acme/clip")(**inputs)
probabilities = outputs.logits_per_image.softmax(dim=1)
torch.testing.assert_close(probabilities, expected.logits_per_image.softmax(dim=1), **exact)
torch.testing.assert_close(outputs.image_embeds, expected.image_embeds, **exact)
