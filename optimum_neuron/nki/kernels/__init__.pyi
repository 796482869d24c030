from .flash_attention import flash_attention as flash_attention
from .flash_attention_backward import flash_attention_backward as flash_attention_backward
from .operators import attention as attention, refusal as refusal
