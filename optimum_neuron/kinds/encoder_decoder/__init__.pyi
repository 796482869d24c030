from .configuration import (
    NeuronSeq2SeqConfig as NeuronSeq2SeqConfig,
    NeuronSpeechSeq2SeqConfig as NeuronSpeechSeq2SeqConfig,
)
from .entry import EncodedSource as EncodedSource
from .signature import encoder_decoder_signature as encoder_decoder_signature
from .sources import TOKENS as TOKENS, Source as Source
