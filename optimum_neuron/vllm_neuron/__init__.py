"""vLLM's classes over continuous batching and the server here: `LLM`, `SamplingParams`, `LLMEngine`, `vllm serve`.

Scripts import them as `vllm`, from the distribution in `sdk_vllm/`. Requests are those of the server's generator; this
package reads vLLM's parameters and writes its outputs.

    llm = LLM(model="tiny_llama", max_model_len=128, max_num_seqs=4)
    outputs = llm.generate(["Hello"], SamplingParams(temperature=0.0, max_tokens=8))
    print(outputs[0].outputs[0].text)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
