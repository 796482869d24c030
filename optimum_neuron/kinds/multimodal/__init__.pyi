from . import plan as plan
