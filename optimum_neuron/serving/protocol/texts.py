"""Bodies of `/v1/embeddings`, `/score`, and `/rerank`: OpenAI's, vLLM's, Jina's, and Cohere's fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from .base import Count, Many, Priority, Request, Strict, Text, TimeLimit

_MOST = 2048
"""Texts of a body, as OpenAI limits them."""

_Texts = Annotated[Many[Text], Field(min_length=1, max_length=_MOST)]
_Tokens = Annotated[Many[Count], Field(min_length=1, max_length=500_000)]


class TextRequest(Request):
    """What bodies with texts have in common."""

    truncate_prompt_tokens: Annotated[int, Field(ge=-1)] | None = None
    """Tokens to which texts are cut; -1 for as many as the model takes."""
    priority: Priority = 0
    request_id: Annotated[str, Field(max_length=256)] | None = None
    timeout_s: TimeLimit = None

    @model_validator(mode="after")
    def _cuts_to_something(self) -> TextRequest:
        if self.truncate_prompt_tokens == 0:
            raise ValueError("truncate_prompt_tokens is 0; send 1 or more, or -1")
        return self


class EmbeddingRequest(TextRequest):
    """Body of `/v1/embeddings`."""

    input: Text | _Texts | _Tokens | Annotated[Many[_Tokens], Field(min_length=1, max_length=_MOST)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None

    @property
    def inputs(self) -> list[Any]:
        """Texts, or the tokens of texts."""
        is_one = isinstance(self.input, str) or isinstance(self.input[0], int)
        return [self.input] if is_one else list(self.input)


class ScoreRequest(TextRequest):
    """Body of `/score`."""

    text_1: Text | _Texts
    text_2: Text | _Texts

    @property
    def lefts(self) -> list[str]:
        """First texts of the pairs."""
        return [self.text_1] if isinstance(self.text_1, str) else self.text_1

    @property
    def rights(self) -> list[str]:
        """Second texts."""
        return [self.text_2] if isinstance(self.text_2, str) else self.text_2


class Document(Strict):
    """A document as an object."""

    text: Text


class RerankRequest(TextRequest):
    """Body of `/rerank`."""

    query: Text
    documents: Annotated[Many[Text | Document], Field(min_length=1, max_length=_MOST)]
    top_n: Annotated[int, Field(ge=0)] | None = None
    """Documents to return; None or 0 for all."""
    return_documents: bool = True

    @property
    def texts(self) -> list[str]:
        """The documents."""
        return [one if isinstance(one, str) else one.text for one in self.documents]
