from .app import make_app as make_app
from .request import StudioRequest as StudioRequest
from .server import running_studio as running_studio, serve_studio as serve_studio
