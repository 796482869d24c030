from .answers import Call as Call
from .deployment import Deployment as Deployment
from .generator import Finished as Finished, Generator as Generator, Piece as Piece, Prompt as Prompt
from .logits import TokenLogprob as TokenLogprob
from .metrics import Metrics as Metrics
from .models import ServedModel as ServedModel, load_replicas as load_replicas
from .options import (
    ModelSpec as ModelSpec,
    ServeOptions as ServeOptions,
    model_specs as model_specs,
    require_packages as require_packages,
)
from .protocol import (
    EmbeddingRequest as EmbeddingRequest,
    Generation as Generation,
    ScoreRequest as ScoreRequest,
    StructuredOutputs as StructuredOutputs,
)
from .runners import (
    Embedder as Embedder,
    Features as Features,
    Scorer as Scorer,
    TextModel as TextModel,
    load_model as load_model,
    pair_scores as pair_scores,
)
from .sampling import make_prompt as make_prompt, sampling_defaults as sampling_defaults
from .server import running_server as running_server, serve as serve
from .structured import grammar_of as grammar_of
