"""`vllm serve MODEL` and `python -m vllm.entrypoints.openai.api_server --model MODEL`: vLLM's flags for our server."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base import env
from ..errors import ConfigError, NeuronError
from ..options.spelling import spelled
from ..serving import Deployment, ModelSpec, ServeOptions, require_packages, serve
from .arg_parser import FlexibleArgumentParser
from .engine_args import AsyncEngineArgs
from .keywords import log_unused
from .options import read_args
from .spelling import keywords_of

_WITHOUT_EFFECT: Mapping[str, Any] = {
    "uvicorn_log_level": "info",
    "disable_uvicorn_access_log": False,
    "response_role": "assistant",
    "enable_auto_tool_choice": False,
    "tool_call_parser": None,
    "chat_template_content_format": "auto",
    "disable_frontend_multiprocessing": False,
    "enable_request_id_headers": False,
    "disable_fastapi_docs": False,
    "enable_prompt_tokens_details": False,
    "enable_server_load_tracking": False,
    "enable_force_include_usage": False,
    "max_log_len": None,
    "log_config_file": None,
    "h11_max_incomplete_event_size": None,
    "h11_max_header_count": None,
    "api_server_count": None,
}
"""Flags of the server that change nothing here, with vLLM's defaults: calls of tools and reasoning are found by the
chat template."""

_REFUSED: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(
        ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_cert_reqs"),
        (None, "Put a proxy with TLS before the server."),
    ),
    "root_path": (None, "Let the proxy remove the prefix."),
    "middleware": (None, "Put a proxy before the server."),
    "prompt_adapters": (None, "Pass --lora-modules."),
    "tool_parser_plugin": (None, "Leave it out: calls of tools are found by the chat template."),
    "headless": (False, "Leave it out: one process drives all cores."),
    "return_tokens_as_token_ids": (False, "Send return_tokens_as_token_ids in requests."),
    "allow_credentials": (False, "Send the API key in the header Authorization."),
}
"""Flags that are refused if they are set, with the alternative."""


def serve_model(words: Sequence[str]) -> int:
    """Run `vllm serve` with the arguments that follow it; return the exit status."""
    parser = _parser("vllm serve")
    parser.add_argument("model_tag", nargs="?", metavar="MODEL", help="folder or Hub model ID")
    return _run(parser, words)


def api_server(argv: Sequence[str] | None = None) -> int:
    """Run the server with a model that `--model` names; return its exit status.

    Args:
        argv: its arguments; None for those of the process.
    """
    return _run(_parser("vllm.entrypoints.openai.api_server"), [*(sys.argv[1:] if argv is None else argv)])


def _parser(program: str) -> FlexibleArgumentParser:
    parser = FlexibleArgumentParser(prog=program, description="Serve a model with OpenAI's protocol.")
    group = parser.add_argument_group("server")
    group.add_argument("--host", default=None, help="address to listen on (default: all)")
    group.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000)")
    group.add_argument("--api-key", nargs="*", default=None, help="keys, one of which requests must have")
    group.add_argument("--lora-modules", nargs="+", default=None, metavar="NAME=FOLDER", help="adapters, also as JSON")
    group.add_argument("--chat-template", default=None, help="template in Jinja, or its file")
    group.add_argument("--allowed-origins", type=json.loads, default=["*"], metavar="JSON", help="web origins (CORS)")
    group.add_argument("--allowed-methods", type=json.loads, default=["*"], metavar="JSON")
    group.add_argument("--allowed-headers", type=json.loads, default=["*"], metavar="JSON")
    defaults = {**_WITHOUT_EFFECT, **{name: default for name, (default, _) in _REFUSED.items()}}
    for name, default in defaults.items():
        form: dict[str, Any] = {"action": argparse.BooleanOptionalAction} if isinstance(default, bool) else {}
        group.add_argument(f"--{name.replace('_', '-')}", dest=name, default=default, help=argparse.SUPPRESS, **form)
    AsyncEngineArgs.add_cli_args(parser)
    parser.set_defaults(model_tag=None)
    return parser


def _run(parser: FlexibleArgumentParser, words: Sequence[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        args = parser.parse_args(words)
        with spelled(keywords_of(_engine_of(args))):
            model, options, replicas = server_of(args)
            require_packages()
            deployment = Deployment([model], options, num_replicas=replicas)
            serve(deployment, on_listening=lambda url: print(f"serving {model.name} at {url}", flush=True))
    except NeuronError as error:
        if env.debug():
            raise
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def server_of(args: argparse.Namespace) -> tuple[ModelSpec, ServeOptions, int]:
    """Return the model, the options, and the number of replicas of a server, from the flags of its command line."""
    given = vars(args)
    for name, (default, hint) in _REFUSED.items():
        if given[name] != default:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} is not supported.", hint=hint, option=name, value=str(given[name]))
    log_unused((name for name, default in _WITHOUT_EFFECT.items() if given[name] != default), where="here")
    engine = _engine_of(args)
    adapters = dict(_adapter(text) for text in args.lora_modules or ())
    if adapters and not engine.enable_lora:
        raise ConfigError(
            "--lora-modules needs --enable-lora.", hint="Pass it too.", option="enable_lora", adapters=list(adapters)
        )
    spec = read_args(engine)
    if engine.served_model_name and len(engine.served_model_name) > 1 and not isinstance(engine.served_model_name, str):
        raise ConfigError(
            f"--served-model-name has {len(engine.served_model_name)} names; a model has one here.",
            hint="Pass one.",
            option="served_model_name",
            value=list(engine.served_model_name),
        )
    spec = dataclasses.replace(spec, adapters=spec.adapters | adapters, chat_template=_template(args.chat_template))
    keys = [*(args.api_key or ()), *([key] if (key := env.vllm_api_key()) else [])]
    origins = () if args.allowed_origins == ["*"] else tuple(args.allowed_origins)
    options = ServeOptions(
        host=args.host or "0.0.0.0", port=args.port, api_key=tuple(keys), allowed_origins=origins or ("*",)
    )
    return spec, options, engine.data_parallel_size


def _engine_of(args: argparse.Namespace) -> AsyncEngineArgs:
    """The arguments of the engine among the flags of a server."""
    engine = AsyncEngineArgs.from_cli_args(args)
    if args.model_tag:
        engine.model = args.model_tag
    return engine


def _adapter(text: str) -> tuple[str, str]:
    """A name and a folder, as name=folder or as JSON."""
    name, _, folder = text.partition("=")
    if text.startswith("{"):
        name, folder = _row(text)
    if not (name and folder and isinstance(name, str) and isinstance(folder, str)):
        hint = 'Pass name=folder, or {"name": NAME, "path": FOLDER}.'
        raise ConfigError(f"{text!r} is no adapter.", hint=hint, option="lora_modules", value=text)
    return name, folder


def _row(text: str) -> tuple[Any, Any]:
    """The name and the path in JSON text; None for what it does not have."""
    try:
        row = json.loads(text)
    except ValueError:
        row = None
    return (row.get("name"), row.get("path")) if isinstance(row, dict) else (None, None)


def _template(value: str | None) -> str | None:
    """A template, or the text of its file."""
    if value is None or "{" in value:
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"The chat template {value} cannot be read: {error.strerror}.",
            hint="Pass a file, or the template itself.",
            option="chat_template",
            value=value,
        ) from error
