from .base import Features as Features, TextModel as TextModel
from .choice import Runner as Runner, choose_runner as choose_runner, load_model as load_model
from .embedding import Embedder as Embedder, embed as embed
from .images import Painter as Painter, draw as draw
from .scoring import Scorer as Scorer, pair_scores as pair_scores, rerank as rerank, score as score
from .speech import Transcriber as Transcriber, transcribe as transcribe
