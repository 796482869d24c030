"""Body of `/v1/responses`: OpenAI's fields, and the sampling parameters of vLLM beside them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from .base import Json, Label, Many, Schema, Strict, Text
from .generation import MAX_PARTS, MAX_TOOLS, Generation

_Status = Literal["in_progress", "completed", "incomplete"]


class InputText(Strict):
    """A text of a message."""

    type: Literal["input_text", "output_text", "text"] = "input_text"
    text: Text
    annotations: Annotated[Many[Any], Field(max_length=MAX_PARTS)] | None = None
    logprobs: Annotated[Many[Any], Field(max_length=500_000)] | None = None


class Refusal(Strict):
    """A refusal of an earlier answer."""

    type: Literal["refusal"]
    refusal: Text


class InputMessage(Strict):
    """A message, of a user or of an earlier answer."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[Many[InputText | Refusal], Field(max_length=MAX_PARTS)]
    id: Label | None = None
    status: _Status | None = None
    phase: Label | None = None

    @property
    def text(self) -> str:
        """Its whole text."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text if isinstance(part, InputText) else part.refusal for part in self.content)


class FunctionCall(Strict):
    """A call in an earlier answer."""

    type: Literal["function_call"]
    call_id: Label
    name: Label
    arguments: Text
    id: Label | None = None
    status: _Status | None = None


class FunctionOutput(Strict):
    """The result of a call."""

    type: Literal["function_call_output"]
    call_id: Label
    output: Text | Annotated[Many[InputText], Field(max_length=MAX_PARTS)]
    id: Label | None = None
    status: _Status | None = None

    @property
    def text(self) -> str:
        """Its whole text."""
        return self.output if isinstance(self.output, str) else "".join(part.text for part in self.output)


class ReasoningText(Strict):
    """A text of reasoning."""

    type: Literal["reasoning_text", "summary_text"]
    text: Text


class ReasoningItem(Strict):
    """Reasoning of an earlier answer."""

    type: Literal["reasoning"]
    id: Label | None = None
    summary: Annotated[Many[ReasoningText], Field(max_length=MAX_PARTS)] = []
    content: Annotated[Many[ReasoningText], Field(max_length=MAX_PARTS)] | None = None
    encrypted_content: None = None
    status: _Status | None = None


Item = InputMessage | FunctionCall | FunctionOutput | ReasoningItem


class ResponseTool(Strict):
    """A function that the model may call."""

    type: Literal["function"] = "function"
    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: Text | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class ResponseToolChoice(Strict):
    """The function that the model must call."""

    type: Literal["function"] = "function"
    name: Label


class TextFormat(Strict):
    """Form of the answer's text."""

    type: Literal["text", "json_object", "json_schema"]
    name: Label | None = None
    schema_: Schema | None = Field(None, alias="schema")
    strict: bool | None = None
    description: Text | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> TextFormat:
        if self.type == "json_schema" and self.schema_ is None:
            raise ValueError("type 'json_schema' needs schema")
        return self


class TextOptions(Strict):
    """The answer's text."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningOptions(Strict):
    """Reasoning before the answer."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: None = None
    generate_summary: None = None


class ResponseStreamOptions(Strict):
    """Options of a stream."""

    include_obfuscation: Literal[False] | None = None


class ResponsesRequest(Generation):
    """Body of `/v1/responses`."""

    input: Text | Annotated[Many[Item], Field(min_length=1, max_length=4096)]
    instructions: Text | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    previous_response_id: Label | None = None
    store: bool | None = None
    """Whether the server keeps the response; None for True, if it keeps any."""
    tools: Annotated[Many[ResponseTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: Annotated[Many[Literal["message.output_text.logprobs"]], Field(max_length=16)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    metadata: Annotated[dict[Label, Label], Field(max_length=16)] | None = None
    truncation: Literal["disabled"] | None = None
    background: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None
    chat_template_kwargs: Json | None = None
    # Generation's, where this endpoint differs.
    n: Literal[1] = 1
    response_format: None = None
    return_token_ids: Literal[False] = False
    stream_options: ResponseStreamOptions | None = None  # type: ignore[assignment]

    @property
    def format(self) -> TextFormat | None:
        """Form of the answer's text."""
        return None if self.text is None else self.text.format
