"""Vectors, classes and scores of texts, by the server's models that answer in one call."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import torch

from ..errors import ConfigError
from ..serving import Call, Embedder, EmbeddingRequest, Scorer, ScoreRequest, pair_scores
from .classifier import Classifier
from .inputs import Input, read_prompts
from .keywords import check_keywords, checked
from .outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingOutput,
    PoolingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)

if TYPE_CHECKING:
    from .core import Core

_NUMBERS = itertools.count()


@checked
@dataclasses.dataclass
class PoolingParams:
    """Parameters of `embed`, `encode`, and `classify`."""

    dimensions: int | None = None
    """Length of vectors, for models that were trained for several."""
    normalize: bool | None = None
    """Vectors are normalized if the model's own pipeline does it; another value is refused."""
    task: str | None = None
    truncate_prompt_tokens: int | None = None
    additional_data: Any = None
    softmax: bool | None = None
    activation: bool | None = None
    use_activation: bool | None = None

    def __post_init__(self) -> None:
        for name in ("normalize", "softmax", "activation", "use_activation", "additional_data"):
            if (value := getattr(self, name)) is not None:
                raise ConfigError(
                    f"{name}={value!r} is not supported.",
                    hint="Leave it out: what follows the model is what its files say.",
                    option=name,
                    value=value,
                )


def _params(pooling_params: Any, truncate_prompt_tokens: int | None) -> PoolingParams:
    params = pooling_params or PoolingParams()
    return (
        params
        if truncate_prompt_tokens is None
        else dataclasses.replace(params, truncate_prompt_tokens=truncate_prompt_tokens)
    )


def _request_id() -> str:
    return str(next(_NUMBERS))


def _vectors(core: Core, prompts: object, params: PoolingParams) -> list[tuple[list[int], torch.Tensor]]:
    """Tokens and vector of each prompt."""
    model = core.backend
    if not isinstance(model, Embedder):
        raise ConfigError(
            "This model makes no vectors.",
            hint='Pass task="embed" or runner="pooling" to LLM, with a model for embeddings.',
            option="task",
            value=core.args.task,
        )
    rows = [_text_or_ids(one) for one in read_prompts(prompts)]
    body = EmbeddingRequest.model_construct(input=rows, truncate_prompt_tokens=params.truncate_prompt_tokens)
    size = model.dimensions(params.dimensions)

    async def work() -> list[tuple[list[int], torch.Tensor]]:
        items = await model.features_of(rows, body)
        vectors = await model.compute(items, Call(timeout_s=None))
        if size is not None:
            vectors = [torch.nn.functional.normalize(vector[:size], dim=-1) for vector in vectors]
        return [(item["input_ids"], vector) for item, vector in zip(items, vectors, strict=True)]

    found: list[tuple[list[int], torch.Tensor]] = core.loop.submit(work()).result()
    return found


def _text_or_ids(prompt: Input) -> str | list[int]:
    if prompt.ids is not None:
        return prompt.ids
    assert prompt.text is not None, "a prompt has a text or tokens"
    return prompt.text


def embedded(
    core: Core, prompts: object, *, pooling_params: object = None, truncate_prompt_tokens: int | None = None
) -> list[EmbeddingRequestOutput]:
    """Return the vector of each prompt."""
    rows = _vectors(core, prompts, _params(pooling_params, truncate_prompt_tokens))
    return [EmbeddingRequestOutput(_request_id(), EmbeddingOutput(vector.tolist()), ids) for ids, vector in rows]


def pooled(core: Core, prompts: Any, **options: Any) -> list[PoolingRequestOutput]:
    """Return what the model computes for each prompt, as a tensor."""
    known = ("pooling_params", "pooling_task", "truncate_prompt_tokens", "use_tqdm")
    check_keywords(options, known, what="encode()")
    params = _params(options.get("pooling_params"), options.get("truncate_prompt_tokens"))
    task = options.get("pooling_task") or params.task or "embed"
    if task not in ("embed", "classify"):
        raise ConfigError(
            f"pooling_task={task!r} is not supported.",
            hint="Pass embed or classify; for vectors of tokens, use NeuronModelForFeatureExtraction.",
            option="pooling_task",
            value=task,
        )
    rows = _vectors(core, prompts, params) if task == "embed" else _probabilities(core, prompts, params)
    return [PoolingRequestOutput(_request_id(), PoolingOutput(vector), ids) for ids, vector in rows]


def _probabilities(core: Core, prompts: object, params: PoolingParams) -> list[tuple[list[int], torch.Tensor]]:
    """Tokens of each prompt, and the probability of each class."""
    model = core.backend
    if not isinstance(model, (Classifier, Scorer)):
        raise ConfigError(
            "This model has no classes.",
            hint='Pass task="classify" to LLM, with a model for text classification.',
            option="task",
            value=core.args.task,
        )
    texts = [(text,) for text in _texts(prompts)]
    body = ScoreRequest.model_construct(text_1="", text_2="", truncate_prompt_tokens=params.truncate_prompt_tokens)

    async def work() -> list[tuple[list[int], torch.Tensor]]:
        items = await model.features_of(texts, body)
        rows = [torch.as_tensor(row).flatten() for row in await model.compute(items, Call(timeout_s=None))]
        return [(item["input_ids"], row) for item, row in zip(items, rows, strict=True)]

    found: list[tuple[list[int], torch.Tensor]] = core.loop.submit(work()).result()
    return found


def classified(
    core: Core, prompts: object, *, pooling_params: object = None, truncate_prompt_tokens: int | None = None
) -> list[ClassificationRequestOutput]:
    """Return the probabilities of each prompt's classes."""
    rows = _probabilities(core, prompts, _params(pooling_params, truncate_prompt_tokens))
    return [ClassificationRequestOutput(_request_id(), ClassificationOutput(row.tolist()), ids) for ids, row in rows]


def scored(
    core: Core, left: object, right: object, *, truncate_prompt_tokens: int | None = None, pooling_params: object = None
) -> list[ScoringRequestOutput]:
    """Return how well pairs of texts fit each other."""
    lefts, rights = _texts(left), _texts(right)
    lefts = lefts * len(rights) if len(lefts) == 1 else lefts
    if len(lefts) != len(rights):
        raise ConfigError(
            f"There are {len(lefts)} first texts, but {len(rights)} second ones.",
            hint="Pass as many, or one first text.",
            num_first=len(lefts),
            num_second=len(rights),
        )
    model = core.backend
    if not isinstance(model, (Embedder, Scorer)):
        raise ConfigError(
            "This model makes no scores.",
            hint='Pass task="score" to LLM, with a cross-encoder or a model for embeddings.',
            option="task",
            value=core.args.task,
        )
    body = ScoreRequest.model_construct(text_1="", text_2="", truncate_prompt_tokens=truncate_prompt_tokens)
    pairs = list(zip(lefts, rights, strict=True))
    scores, _ = core.loop.submit(pair_scores(model, pairs, body, Call(timeout_s=None))).result()
    tokens = [model.tokenizer(*pair)["input_ids"] for pair in pairs]
    return [
        ScoringRequestOutput(_request_id(), ScoringOutput(score), ids)
        for score, ids in zip(scores, tokens, strict=True)
    ]


def _texts(data: object) -> list[str]:
    rows = [one.text for one in read_prompts(data)]
    if any(text is None for text in rows):
        raise ConfigError("Scores need texts, not tokens.", hint="Pass texts.", option="data_1")
    return rows  # type: ignore[return-value]  # none is None
