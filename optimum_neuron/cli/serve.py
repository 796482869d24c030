"""`optimum-cli neuron serve`: answer requests of OpenAI's protocol with compiled models.

The work is `optimum_neuron.serving`.
"""

from __future__ import annotations

import argparse
import dataclasses

from optimum.commands.base import CommandInfo

from .arguments import add_compile_arguments, add_option_arguments, add_validation_switch, options_from
from .capacity import add_capacity_arguments, reject_capacity_options, run_capacity
from .fleet import (
    FLEET_OPTIONS,
    add_fleet_arguments,
    is_fleet_file,
    reject_fleet_options,
    run_fleet,
    run_fleet_file,
)
from .output import Out
from .parser import Command
from .serve_peers import add_served_models, add_server_peers, translate_server_peers


class ServeCommand(Command):
    COMMAND = CommandInfo(name="serve", help="Serve models with OpenAI's protocol.")
    DESCRIPTION = """Serve models with OpenAI's protocol: chats, completions, embeddings, and more.

  optimum-cli neuron serve smollm2
  optimum-cli neuron serve smollm2 --sequence_length 2048 --batch_size 16 --port 8080
  optimum-cli neuron serve ./smollm2_neuron ./minilm_neuron --served_model_name chat,embed
  optimum-cli neuron serve smollm2 --num_replicas 2

With --ray, or with the configuration file of a fleet, replicas are served on a Ray cluster.

  optimum-cli neuron serve smollm2 --ray --num_replicas 2
  optimum-cli neuron serve serve.yaml

With --simulate it prints a capacity plan in place of serving: a trace of requests in simulated time.

  optimum-cli neuron serve smollm2 --simulate poisson:20 --input_length 512 --output_length 128 --slo ttft=500,tpot=50
  optimum-cli neuron serve smollm2 --simulate AzureLLMInferenceTrace_conv.csv --slo ttft=500,tpot=50 --sweep
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        from ..serving import ServeOptions

        add_served_models(parser)
        add_option_arguments(parser, ServeOptions)
        add_capacity_arguments(parser)
        add_fleet_arguments(parser)
        add_compile_arguments(parser)
        add_validation_switch(parser)
        add_server_peers(parser)

    def execute(self, out: Out) -> int | None:
        translate_server_peers(self.parser, self.args)
        if self.args.simulate is not None:
            return run_capacity(self.args, out)
        reject_capacity_options(self.args)
        self._serve(out)
        return None

    def _serve(self, out: Out) -> None:
        from ..base import env
        from ..serving import ServeOptions, model_specs, require_packages

        require_packages()
        from ..serving import Deployment, serve

        if is_fleet_file(self.args.models):
            run_fleet_file(self.args, out)
            return
        names = [field.name for field in dataclasses.fields(ServeOptions)]
        given = options_from(self.args, without=("models", *FLEET_OPTIONS, "num_replicas"))
        options = ServeOptions(**{name: given.pop(name) for name in names if name in given})
        if key := env.api_key():
            options = dataclasses.replace(options, api_key=(*options.api_key, key))
        specs = model_specs(tuple(self.args.models), options, given)
        if self.args.ray:
            run_fleet(self.args, out, specs, options)
            return
        reject_fleet_options(self.args)
        deployment = Deployment(specs, options, num_replicas=self.args.num_replicas or 1)

        def announce(url: str) -> None:
            out.result(
                {"url": url, "models": [name for name, *_ in deployment.registry.names()]}, human=_show, brief=url
            )
            out.hint(f"curl {url}/v1/models")
            out.flush()

        serve(deployment, on_listening=announce)


def _show(out: Out, data: object) -> None:
    assert isinstance(data, dict)
    out.text(f"serving {', '.join(data['models'])} at {data['url']} (the device is simulated)")
