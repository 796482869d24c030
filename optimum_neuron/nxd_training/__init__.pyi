from .configuration import Given as Given, read_given as read_given
from .options import estimate_options as estimate_options
from .training import model_config as model_config, train as train
