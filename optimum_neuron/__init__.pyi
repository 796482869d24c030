from .buckets import suggest_buckets as suggest_buckets
from .checking import check_model as check_model
from .exporters import main_export as main_export
from .kinds.diffusion import NeuronDiffusionConfig as NeuronDiffusionConfig
from .kinds.encoder import NeuronEncoderConfig as NeuronEncoderConfig
from .kinds.encoder_decoder import (
    NeuronSeq2SeqConfig as NeuronSeq2SeqConfig,
    NeuronSpeechSeq2SeqConfig as NeuronSpeechSeq2SeqConfig,
)
from .kinds.multimodal.audio import NeuronAudioTextConfig as NeuronAudioTextConfig
from .kinds.multimodal.image import NeuronImageTextConfig as NeuronImageTextConfig
from .modeling import (
    NeuronModelForAudioClassification as NeuronModelForAudioClassification,
    NeuronModelForAudioFrameClassification as NeuronModelForAudioFrameClassification,
    NeuronModelForCausalLM as NeuronModelForCausalLM,
    NeuronModelForCTC as NeuronModelForCTC,
    NeuronModelForDepthEstimation as NeuronModelForDepthEstimation,
    NeuronModelForEmbedding as NeuronModelForEmbedding,
    NeuronModelForFeatureExtraction as NeuronModelForFeatureExtraction,
    NeuronModelForImageClassification as NeuronModelForImageClassification,
    NeuronModelForImageTextToText as NeuronModelForImageTextToText,
    NeuronModelForMaskedLM as NeuronModelForMaskedLM,
    NeuronModelForMultimodalLM as NeuronModelForMultimodalLM,
    NeuronModelForMultipleChoice as NeuronModelForMultipleChoice,
    NeuronModelForObjectDetection as NeuronModelForObjectDetection,
    NeuronModelForQuestionAnswering as NeuronModelForQuestionAnswering,
    NeuronModelForSemanticSegmentation as NeuronModelForSemanticSegmentation,
    NeuronModelForSeq2SeqLM as NeuronModelForSeq2SeqLM,
    NeuronModelForSequenceClassification as NeuronModelForSequenceClassification,
    NeuronModelForSpeechSeq2Seq as NeuronModelForSpeechSeq2Seq,
    NeuronModelForTextReranking as NeuronModelForTextReranking,
    NeuronModelForTokenClassification as NeuronModelForTokenClassification,
    NeuronModelForXVector as NeuronModelForXVector,
    NeuronModelForZeroShotImageClassification as NeuronModelForZeroShotImageClassification,
    NeuronSentenceTransformer as NeuronSentenceTransformer,
    NeuronTracedModel as NeuronTracedModel,
    NeuronWhisperForConditionalGeneration as NeuronWhisperForConditionalGeneration,
)
from .modeling.diffusion import (
    NeuronDDIMPipeline as NeuronDDIMPipeline,
    NeuronDDPMPipeline as NeuronDDPMPipeline,
    NeuronDiffusionPipeline as NeuronDiffusionPipeline,
    NeuronDiffusionPipelineBase as NeuronDiffusionPipelineBase,
    NeuronFluxImg2ImgPipeline as NeuronFluxImg2ImgPipeline,
    NeuronFluxInpaintPipeline as NeuronFluxInpaintPipeline,
    NeuronFluxKontextPipeline as NeuronFluxKontextPipeline,
    NeuronFluxPipeline as NeuronFluxPipeline,
    NeuronLatentConsistencyModelPipeline as NeuronLatentConsistencyModelPipeline,
    NeuronLTXPipeline as NeuronLTXPipeline,
    NeuronPixArtAlphaPipeline as NeuronPixArtAlphaPipeline,
    NeuronPixArtSigmaPipeline as NeuronPixArtSigmaPipeline,
    NeuronStableDiffusion3Img2ImgPipeline as NeuronStableDiffusion3Img2ImgPipeline,
    NeuronStableDiffusion3InpaintPipeline as NeuronStableDiffusion3InpaintPipeline,
    NeuronStableDiffusion3Pipeline as NeuronStableDiffusion3Pipeline,
    NeuronStableDiffusionControlNetPipeline as NeuronStableDiffusionControlNetPipeline,
    NeuronStableDiffusionImg2ImgPipeline as NeuronStableDiffusionImg2ImgPipeline,
    NeuronStableDiffusionInpaintPipeline as NeuronStableDiffusionInpaintPipeline,
    NeuronStableDiffusionInstructPix2PixPipeline as NeuronStableDiffusionInstructPix2PixPipeline,
    NeuronStableDiffusionPipeline as NeuronStableDiffusionPipeline,
    NeuronStableDiffusionXLControlNetPipeline as NeuronStableDiffusionXLControlNetPipeline,
    NeuronStableDiffusionXLImg2ImgPipeline as NeuronStableDiffusionXLImg2ImgPipeline,
    NeuronStableDiffusionXLInpaintPipeline as NeuronStableDiffusionXLInpaintPipeline,
    NeuronStableDiffusionXLPipeline as NeuronStableDiffusionXLPipeline,
)
from .options.configuration import NeuronConfig as NeuronConfig
from .pipelines import pipeline as pipeline
from .trainer import (
    NeuronTrainer as NeuronTrainer,
    NeuronTrainingArguments as NeuronTrainingArguments,
    Seq2SeqNeuronTrainer as Seq2SeqNeuronTrainer,
    Seq2SeqNeuronTrainingArguments as Seq2SeqNeuronTrainingArguments,
)
from .trainer.post_training import (
    NeuronDPOConfig as NeuronDPOConfig,
    NeuronDPOTrainer as NeuronDPOTrainer,
    NeuronGRPOConfig as NeuronGRPOConfig,
    NeuronGRPOTrainer as NeuronGRPOTrainer,
    NeuronORPOConfig as NeuronORPOConfig,
    NeuronORPOTrainer as NeuronORPOTrainer,
    NeuronRewardConfig as NeuronRewardConfig,
    NeuronRewardTrainer as NeuronRewardTrainer,
    NeuronSFTConfig as NeuronSFTConfig,
    NeuronSFTTrainer as NeuronSFTTrainer,
)
from .version import __version__ as __version__

DIFFUSION_NAMES: tuple[str, ...]
TRAINING_NAMES: tuple[str, ...]
