from . import stock_pipelines as stock_pipelines
from .artifacts import compile_with_warning as compile_with_warning, load_artifacts as load_artifacts
from .cache import NeuronCache as NeuronCache
from .causal_lm import NeuronModelForCausalLM as NeuronModelForCausalLM
from .columns import Columns as Columns
from .eagle import EagleDraft as EagleDraft
from .eagle_parts import hidden_layers_of as hidden_layers_of
from .embedding import NeuronModelForEmbedding as NeuronModelForEmbedding
from .foreign_checks import (
    require_experts as require_experts,
    require_heads as require_heads,
    require_quantization as require_quantization,
    require_rows as require_rows,
    require_vocabulary as require_vocabulary,
    sequences_each as sequences_each,
)
from .image_text import NeuronModelForImageTextToText as NeuronModelForImageTextToText
from .loading import CHECKPOINT_OPTIONS as CHECKPOINT_OPTIONS, LOAD_OPTIONS as LOAD_OPTIONS, NeuronModel as NeuronModel
from .medusa import MedusaHeads as MedusaHeads
from .model import load_preprocessor as load_preprocessor
from .multimodal import NeuronModelForMultimodalLM as NeuronModelForMultimodalLM
from .reranking import NeuronModelForTextReranking as NeuronModelForTextReranking
from .sentences import NeuronSentenceTransformer as NeuronSentenceTransformer
from .seq2seq import NeuronModelForSeq2SeqLM as NeuronModelForSeq2SeqLM
from .slots import SequenceSlots as SequenceSlots
from .speculation import Draft as Draft, Speculation as Speculation
from .speech import (
    NeuronModelForSpeechSeq2Seq as NeuronModelForSpeechSeq2Seq,
    NeuronWhisperForConditionalGeneration as NeuronWhisperForConditionalGeneration,
)
from .tasks import (
    NeuronModelForAudioClassification as NeuronModelForAudioClassification,
    NeuronModelForAudioFrameClassification as NeuronModelForAudioFrameClassification,
    NeuronModelForCTC as NeuronModelForCTC,
    NeuronModelForDepthEstimation as NeuronModelForDepthEstimation,
    NeuronModelForFeatureExtraction as NeuronModelForFeatureExtraction,
    NeuronModelForImageClassification as NeuronModelForImageClassification,
    NeuronModelForMaskedLM as NeuronModelForMaskedLM,
    NeuronModelForMultipleChoice as NeuronModelForMultipleChoice,
    NeuronModelForObjectDetection as NeuronModelForObjectDetection,
    NeuronModelForQuestionAnswering as NeuronModelForQuestionAnswering,
    NeuronModelForSemanticSegmentation as NeuronModelForSemanticSegmentation,
    NeuronModelForSequenceClassification as NeuronModelForSequenceClassification,
    NeuronModelForTokenClassification as NeuronModelForTokenClassification,
    NeuronModelForXVector as NeuronModelForXVector,
    NeuronModelForZeroShotImageClassification as NeuronModelForZeroShotImageClassification,
)
from .traced import NeuronTracedModel as NeuronTracedModel
