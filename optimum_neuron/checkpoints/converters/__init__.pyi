from . import librivox as librivox, photographs as photographs, vader as vader, whisper as whisper, wordnet as wordnet
