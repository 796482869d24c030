"""20,000 wrong requests for a server with a tiny decoder, an embedder, and a cross-encoder.

None may be answered with a status of 500, a traceback, or an error without OpenAI's form. Afterwards the engine holds
no request and no block, memory is flat, and an answer is as before. It runs only when it is named; `--quick` sends a
tenth.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.encoders import save_letters, save_tiny_encoder
from tests.footprint import footprint
from tests.serving.fuzz import Report, fuzz
from tests.tiny import NUM_BYTE_TOKENS, save_tiny, save_tokenizer

from .harness import Row, Settings

NUM_REQUESTS, NUM_WARM = 20_000, 1000


class _Errors(logging.Handler):
    """Notes errors that the server logs: bugs, whose text clients do not get."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note one."""
        self.texts.append(self.format(record))


def run(settings: Settings) -> list[Row]:
    """Serve, and send."""
    from optimum_neuron.serving import Deployment, ModelSpec, ServeOptions, running_server

    number = NUM_REQUESTS // (10 if settings.quick else 1)
    errors = _Errors()
    logging.getLogger("optimum_neuron").addHandler(errors)
    options = ServeOptions(port=0, max_queue_size=32, max_body_bytes=1_000_000, response_store_bytes=1_000_000)
    with tempfile.TemporaryDirectory() as work:
        deployment = Deployment([ModelSpec(**spec) for spec in _models(Path(work))], options)
        with running_server(deployment) as url:
            for model in deployment.registry.models:
                if model.error is not None:
                    raise model.error
            return _measure(url, deployment, number, errors)


def _models(work: Path) -> list[dict[str, Any]]:
    decoder = save_tokenizer(save_tiny(work / "chat", "llama", vocab_size=NUM_BYTE_TOKENS, max_position_embeddings=96))
    rows: list[tuple[str, Path, dict[str, Any]]] = [("chat", decoder, {"sequence_length": 96, "batch_size": 4})]
    for name, task in (("embed", "feature-extraction"), ("rank", "text-classification")):
        folder = save_letters(save_tiny_encoder(work / name, "bert", task, num_labels=1))
        rows.append((name, folder, {"sequence_length": [8, 24], "batch_size": [1, 4]}))
    common = {"optlevel": "1", "disable_validation": True}
    return [{"name": name, "source": str(folder), "options": how | common} for name, folder, how in rows]


def _measure(url: str, deployment: Any, number: int, errors: _Errors) -> list[Row]:
    names = [model.spec.name for model in deployment.registry.models]
    manager = deployment.registry.models[0].backend.manager

    def send(number: int, seed: int) -> Report:
        return asyncio.run(fuzz(url, number=number, seed=seed, models=names, num_clients=16, progress=True))

    def answer() -> list[int]:
        name = manager.add_request([40, 41, 42], max_new_tokens=16, do_sample=False, eos_token_id=-1)
        tokens: list[int] = manager.get_result(name).generated_tokens
        return tokens

    expected = answer()
    warm = send(NUM_WARM, seed=1)
    before = footprint()
    report = send(number, seed=0)
    after = footprint()
    for text in [*warm.failures, *report.failures, *errors.texts][:20]:
        print(text, file=sys.stderr)
    rows = [Row(what=f"status {status}", value=count, unit="") for status, count in sorted(report.statuses.items())]
    engine = manager.engine
    facts = {
        "failures": len(report.failures),
        "errors in the log": len(errors.texts),
        "requests left in the engine": int(engine.has_work),
        "blocks lost": engine.pool.num_used,
        "answers that changed": int(answer() != expected),
    }
    rows += [Row(what=what, value=value, unit="", note="bar: 0") for what, value in facts.items()]
    growth = (after.resident_bytes - before.resident_bytes) / 2**20
    rows.append(Row(what="growth of memory", value=growth, unit="MiB", note=f"{number} requests"))
    rows.append(Row(what="growth of threads", value=after.num_threads - before.num_threads, unit=""))
    return rows
