from .answers import Call as Call
from .deployment import ENDPOINTS as ENDPOINTS, Deployment as Deployment
from .models import BACKENDS as BACKENDS, Registry as Registry, ServedModel as ServedModel
from .options import (
    ModelSpec as ModelSpec,
    ServeOptions as ServeOptions,
    model_specs as model_specs,
    require_packages as require_packages,
)
from .parsing import AnswerParser as AnswerParser, Part as Part, choose_template as choose_template
from .problems import problem_of as problem_of
from .server import running_server as running_server, serve as serve
from .text import Detokenizer as Detokenizer, TextStream as TextStream
