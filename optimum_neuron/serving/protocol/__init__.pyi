from .base import MAX_SCHEMA as MAX_SCHEMA, Request as Request, check_nested as check_nested, parse as parse
from .generation import (
    ChatRequest as ChatRequest,
    CompletionRequest as CompletionRequest,
    DetokenizeRequest as DetokenizeRequest,
    Generation as Generation,
    Message as Message,
    NamedTool as NamedTool,
    StructuredOutputs as StructuredOutputs,
    TokenizeRequest as TokenizeRequest,
)
from .media import (
    AudioRequest as AudioRequest,
    ImageRequest as ImageRequest,
    TranscriptionRequest as TranscriptionRequest,
    TranslationRequest as TranslationRequest,
)
from .responses import (
    FunctionCall as FunctionCall,
    FunctionOutput as FunctionOutput,
    InputMessage as InputMessage,
    InputText as InputText,
    Item as Item,
    ReasoningItem as ReasoningItem,
    ReasoningText as ReasoningText,
    ResponsesRequest as ResponsesRequest,
)
from .texts import (
    EmbeddingRequest as EmbeddingRequest,
    RerankRequest as RerankRequest,
    ScoreRequest as ScoreRequest,
    TextRequest as TextRequest,
)
