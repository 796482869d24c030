"""Fine-tuning of a classifier with `NeuronTrainer`, evaluated at each epoch, then compiled for inference."""

import numpy as np
import torch
from datasets import Dataset
from optimum.neuron import NeuronModelForSequenceClassification, NeuronTrainer, NeuronTrainingArguments
from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

model_id = "acme/bert-sentiment"
set_seed(0)
tokenizer = AutoTokenizer.from_pretrained(model_id)
rows = [{"text": "a joy to see", "label": 2}, {"text": "so bad", "label": 0}] * 8


def tokenize(batch):
    return tokenizer(batch["text"], padding="max_length", truncation=True, max_length=32)


dataset = Dataset.from_list(rows).map(tokenize, batched=True)


def compute_metrics(prediction):
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


training_args = NeuronTrainingArguments(
    output_dir="finetuned",
    overwrite_output_dir=True,
    do_train=True,
    do_eval=True,
    learning_rate=1e-2,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=8,
    num_train_epochs=4,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_strategy="steps",
    logging_steps=2,
    load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
    report_to="none",
    disable_tqdm=True,
)
model = AutoModelForSequenceClassification.from_pretrained(model_id)
trainer = NeuronTrainer(
    model=model,
    args=training_args,
    train_dataset=dataset,
    eval_dataset=dataset,
    tokenizer=tokenizer,
    compute_metrics=compute_metrics,
)
before = trainer.evaluate()["eval_loss"]
trainer.train()
assert trainer.evaluate()["eval_loss"] < before
trainer.save_model("finetuned/best")

# The tuned weights compile as any others.
compiled = NeuronModelForSequenceClassification.from_pretrained(
    "finetuned/best", export=True, batch_size=1, sequence_length=64
)
inputs = tokenizer("so bad", return_tensors="pt")
with torch.no_grad():
    expected = AutoModelForSequenceClassification.from_pretrained("finetuned/best")(**inputs).logits
torch.testing.assert_close(compiled(**inputs).logits, expected, atol=1e-4, rtol=1e-4)
