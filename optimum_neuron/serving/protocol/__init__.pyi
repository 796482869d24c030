from .base import Request as Request, Strict as Strict, parse as parse
from .generation import (
    ChatRequest as ChatRequest,
    CompletionRequest as CompletionRequest,
    DetokenizeRequest as DetokenizeRequest,
    Generation as Generation,
    JsonSchema as JsonSchema,
    Message as Message,
    NamedTool as NamedTool,
    ResponseFormat as ResponseFormat,
    StructuredOutputs as StructuredOutputs,
    TokenizeRequest as TokenizeRequest,
    Tool as Tool,
)
