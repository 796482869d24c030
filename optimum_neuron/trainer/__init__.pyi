from . import checkpoints as checkpoints
from .accelerator import NeuronAccelerator as NeuronAccelerator
from .arguments import NeuronArgumentsMixin as NeuronArgumentsMixin, NeuronTrainingArguments as NeuronTrainingArguments
from .collators import BucketCollator as BucketCollator
from .inputs import Limits as Limits
from .mixin import NeuronTrainerMixin as NeuronTrainerMixin
from .models import (
    LlamaForCausalLM as LlamaForCausalLM,
    NeuronModelForCausalLM as NeuronModelForCausalLM,
    TrainingNeuronConfig as TrainingNeuronConfig,
)
from .seq2seq import (
    Seq2SeqNeuronTrainer as Seq2SeqNeuronTrainer,
    Seq2SeqNeuronTrainingArguments as Seq2SeqNeuronTrainingArguments,
)
from .trainer import NeuronTrainer as NeuronTrainer
