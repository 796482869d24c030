from . import librivox as librivox, photographs as photographs, vader as vader, whisper as whisper, wordnet as wordnet
from .common import save as save, save_word_tokenizer as save_word_tokenizer
from .ctranslate2 import VERSION as VERSION, read_variables as read_variables
from .onnx import Node as Node, read as read
