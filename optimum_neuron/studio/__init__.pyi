from .app import make_app as make_app
from .server import running_studio as running_studio, serve_studio as serve_studio
