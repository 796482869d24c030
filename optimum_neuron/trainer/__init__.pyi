from . import checkpoints as checkpoints
from .accelerator import NeuronAccelerator as NeuronAccelerator, NeuronAcceleratorState as NeuronAcceleratorState
from .arguments import NeuronArgumentsMixin as NeuronArgumentsMixin, NeuronTrainingArguments as NeuronTrainingArguments
from .collators import BucketCollator as BucketCollator
from .guard import find_culprit as find_culprit
from .inputs import Limits as Limits, require_usable as require_usable
from .memory import training_memory as training_memory
from .metrics import Throughput as Throughput
from .mixin import NeuronTrainerMixin as NeuronTrainerMixin
from .models import (
    LlamaForCausalLM as LlamaForCausalLM,
    NeuronModelForCausalLM as NeuronModelForCausalLM,
    TrainingNeuronConfig as TrainingNeuronConfig,
)
from .optimizer import (
    accumulate_in_float32 as accumulate_in_float32,
    keep_master_weights as keep_master_weights,
    round_gradients as round_gradients,
)
from .peer_arguments import (
    TRANSLATED as TRANSLATED,
    WITHOUT_EFFECT as WITHOUT_EFFECT,
    PeerArgumentsMixin as PeerArgumentsMixin,
)
from .post_training.methods import (
    configuration_for as configuration_for,
    make_classes as make_classes,
    require_trl as require_trl,
)
from .seq2seq import (
    Seq2SeqNeuronTrainer as Seq2SeqNeuronTrainer,
    Seq2SeqNeuronTrainingArguments as Seq2SeqNeuronTrainingArguments,
)
from .trainer import NeuronTrainer as NeuronTrainer
