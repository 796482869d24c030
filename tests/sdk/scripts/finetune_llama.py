"""Fine-tuning of a language model with LoRA: arguments of the command line, a layout, `NeuronSFTTrainer`.

torchrun --nproc_per_node 2 finetune_llama.py --model_id acme/llama --output_dir out ...
"""

import dataclasses

import torch
from datasets import Dataset
from optimum.neuron import NeuronHfArgumentParser, NeuronSFTConfig, NeuronSFTTrainer, NeuronTrainingArguments
from optimum.neuron.models.training import NeuronModelForCausalLM
from peft import LoraConfig
from transformers import AutoTokenizer, set_seed


def load_rows():
    rows = [
        {"instruction": "greet", "context": "", "response": "hello you"},
        {"instruction": "count", "context": "to three", "response": "one two three"},
    ]
    return Dataset.from_list(rows * 8)


def format_row(row):
    parts = [f"### Instruction\n{row['instruction']}", f"### Context\n{row['context']}" if row["context"] else None]
    return "\n\n".join([part for part in parts if part] + [f"### Answer\n{row['response']}"])


def train(model_id, dataset, training_args):
    tokenizer = AutoTokenizer.from_pretrained(model_id)
    tokenizer.pad_token = tokenizer.eos_token
    dtype = torch.bfloat16 if training_args.bf16 else torch.float32
    model = NeuronModelForCausalLM.from_pretrained(
        model_id, training_args.trn_config, torch_dtype=dtype, attn_implementation="flash_attention_2"
    )
    lora = LoraConfig(
        r=4,
        lora_alpha=8,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        bias="none",
        task_type="CAUSAL_LM",
    )
    sft_config = NeuronSFTConfig(max_seq_length=64, packing=False, **training_args.to_dict())
    trainer = NeuronSFTTrainer(
        args=sft_config,
        model=model,
        peft_config=lora,
        processing_class=tokenizer,
        train_dataset=dataset,
        formatting_func=format_row,
    )
    trainer.train()
    return trainer


@dataclasses.dataclass
class ScriptArguments:
    model_id: str = dataclasses.field(default="acme/llama", metadata={"help": "The model to tune."})


def main(words=None):
    parser = NeuronHfArgumentParser([ScriptArguments, NeuronTrainingArguments])
    script_args, training_args = parser.parse_args_into_dataclasses(args=words)
    set_seed(training_args.seed)
    return train(script_args.model_id, load_rows(), training_args)


if __name__ == "__main__":
    main()
