from .answers import Call as Call
from .deployment import ENDPOINTS as ENDPOINTS, Deployment as Deployment
from .metrics import Metrics as Metrics
from .models import Registry as Registry, ServedModel as ServedModel
from .options import (
    ModelSpec as ModelSpec,
    ServeOptions as ServeOptions,
    model_specs as model_specs,
    require_packages as require_packages,
)
from .parsing import AnswerParser as AnswerParser, Part as Part, choose_template as choose_template
from .problems import problem_of as problem_of
from .response_store import ResponseStore as ResponseStore
from .runners import (
    Batcher as Batcher,
    Runner as Runner,
    choose_runner as choose_runner,
    prompt_ids as prompt_ids,
    subtitles as subtitles,
)
from .server import running_server as running_server, serve as serve
from .templates import Templates as Templates
from .text import Detokenizer as Detokenizer, TextStream as TextStream
