"""Load for a server that speaks OpenAI's protocol, with the figures of vLLM's `benchmark_serving`.

    python -m benchmarks.load --base_url http://127.0.0.1:8000 --num_prompts 200 --max_concurrency 100

Prompts are random tokens, and answers stream. Each of `max_concurrency` clients sends its next request when the one
before is answered; with `--request_rate`, requests arrive as a Poisson process instead. `--minutes` goes on for that
long, and reports every minute. `GET /health` is timed meanwhile. It knows the server by its address only.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import dataclasses
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

PERCENTILES = (50, 90, 99)
HEALTH_EVERY_S = 0.2


@dataclasses.dataclass(kw_only=True)
class Sample:
    """Times of one request, in seconds."""

    status: int = 0
    """HTTP status; 0 if the connection failed, 599 if the stream ended with an error."""
    start_s: float = 0.0
    num_prompt: int = 0
    prompt: list[int] = dataclasses.field(default_factory=list)
    tokens: list[int] = dataclasses.field(default_factory=list)
    num_tokens: int = 0
    first_s: float | None = None
    gaps_s: list[float] = dataclasses.field(default_factory=list)
    """Times between chunks after the first."""
    end_s: float = 0.0

    @property
    def ttft_s(self) -> float | None:
        """Time to the first token."""
        return None if self.first_s is None else self.first_s - self.start_s

    @property
    def tpot_s(self) -> float | None:
        """Time per token after the first."""
        if self.first_s is None or self.num_tokens < 2:
            return None
        return (self.end_s - self.first_s) / (self.num_tokens - 1)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile by linear interpolation; 0 without values."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(samples: Sequence[Sample], seconds: float, health_s: Sequence[float] = ()) -> dict[str, Any]:
    """Return the figures of requests, named as in vLLM's benchmark."""
    done = [sample for sample in samples if sample.status == 200]
    num_tokens = sum(sample.num_tokens for sample in done)
    figures: dict[str, Any] = {
        "duration": seconds,
        "completed": len(done),
        "statuses": dict(sorted(collections.Counter(sample.status for sample in samples).items())),
        "total_input_tokens": sum(sample.num_prompt for sample in done),
        "total_output_tokens": num_tokens,
        "request_throughput": len(done) / seconds,
        "output_throughput": num_tokens / seconds,
    }
    times = {
        "ttft": [sample.ttft_s for sample in done if sample.ttft_s is not None],
        "tpot": [sample.tpot_s for sample in done if sample.tpot_s is not None],
        "itl": [gap for sample in done for gap in sample.gaps_s],
        "e2el": [sample.end_s - sample.start_s for sample in done],
        "health": list(health_s),
    }
    for name, values in times.items():
        figures[f"mean_{name}_ms"] = 1e3 * statistics.fmean(values) if values else 0.0
        figures |= {f"p{percent}_{name}_ms": 1e3 * percentile(values, percent) for percent in PERCENTILES}
    return figures


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """What to send."""

    base_url: str
    model: str
    num_prompts: int
    max_concurrency: int
    request_rate: float
    """Requests a second; infinite: as fast as clients are answered."""
    input_len: int
    output_len: int
    vocab_size: int
    seed: int
    minutes: float
    leaving: float
    """Part of the requests whose client leaves after the first tokens."""
    api_key: str

    def prompts(self) -> Iterator[tuple[list[int], int]]:
        """Yield prompts and lengths of answers; without end for a time."""
        draw = random.Random(self.seed)
        number = 0
        while self.minutes or number < self.num_prompts:
            spread = 1.0 if not self.minutes else draw.uniform(0.5, 1.5)
            length = max(round(self.input_len * spread), 1)
            yield [draw.randrange(10, self.vocab_size) for _ in range(length)], max(round(self.output_len * spread), 1)
            number += 1


class Generator:
    """Sends a load, and notes the times."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.samples: list[Sample] = []
        self.health_s: list[float] = []
        self._draw = random.Random(load.seed)

    async def run(self) -> dict[str, Any]:
        """Send everything; return the figures."""
        import aiohttp

        load = self.load
        head = {"Authorization": f"Bearer {load.api_key}"} if load.api_key else {}
        started = time.perf_counter()
        async with aiohttp.ClientSession(
            headers=head, connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=3600)
        ) as session:
            probe = asyncio.ensure_future(self._probe(session))
            report = asyncio.ensure_future(self._report(started))
            prompts = load.prompts()
            end = started + 60 * load.minutes if load.minutes else float("inf")
            if load.request_rate == float("inf"):
                await asyncio.gather(*(self._client(session, prompts, end) for _ in range(load.max_concurrency)))
            else:
                await self._poisson(session, prompts, end)
            for task in (probe, report):
                task.cancel()
        seconds = time.perf_counter() - started
        return summary(self.samples, seconds, self.health_s)

    async def _client(self, session: Any, prompts: Iterator[tuple[list[int], int]], end: float) -> None:
        for prompt, length in prompts:
            if time.perf_counter() > end:
                return
            sample = await self._send(session, prompt, length)
            if sample.status in (0, 429, 503):
                await asyncio.sleep(1)

    async def _poisson(self, session: Any, prompts: Iterator[tuple[list[int], int]], end: float) -> None:
        places, tasks = asyncio.Semaphore(self.load.max_concurrency), []

        async def one(prompt: list[int], length: int) -> None:
            async with places:
                await self._send(session, prompt, length)

        for prompt, length in prompts:
            if time.perf_counter() > end:
                break
            tasks.append(asyncio.ensure_future(one(prompt, length)))
            await asyncio.sleep(self._draw.expovariate(self.load.request_rate))
        await asyncio.gather(*tasks)

    async def _send(self, session: Any, prompt: list[int], length: int) -> Sample:
        import aiohttp

        leaves = self._draw.random() < self.load.leaving
        body = {"model": self.load.model, "prompt": prompt, "max_tokens": length, "temperature": 0}
        body |= {"ignore_eos": True, "stream": True, "return_token_ids": True}
        sample = Sample(start_s=time.perf_counter(), num_prompt=len(prompt), prompt=prompt)
        try:
            async with session.post(f"{self.load.base_url}/v1/completions", json=body) as answer:
                sample.status = answer.status
                if answer.status == 200:
                    await self._read(answer, sample, leaves)
        except aiohttp.ClientError:
            sample.status = 0
        sample.end_s = time.perf_counter()
        if not leaves:
            self.samples.append(sample)
        return sample

    async def _read(self, answer: Any, sample: Sample, leaves: bool) -> None:
        last_s = None
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            event, now_s = json.loads(line[6:]), time.perf_counter()
            if "error" in event:
                sample.status = 599
                return
            tokens = event["choices"][0]["token_ids"]
            sample.num_tokens += len(tokens)
            sample.tokens += tokens
            if last_s is None:
                sample.first_s = now_s
                if leaves:
                    return
            else:
                sample.gaps_s.append(now_s - last_s)
            last_s = now_s

    async def _probe(self, session: Any) -> None:
        while True:
            await asyncio.sleep(HEALTH_EVERY_S)
            started = time.perf_counter()
            async with session.get(f"{self.load.base_url}/health") as answer:
                await answer.read()
            self.health_s.append(time.perf_counter() - started)

    async def _report(self, started: float) -> None:
        """Write the figures of each minute, one JSON object a line."""
        while self.load.minutes:
            num_samples, num_health, begin = len(self.samples), len(self.health_s), time.perf_counter()
            await asyncio.sleep(60)
            now = time.perf_counter()
            figures = summary(self.samples[num_samples:], now - begin, self.health_s[num_health:])
            print(json.dumps({"minute": round((now - started) / 60), **figures}), flush=True)
            # Tokens are compared by short loads only.
            for sample in self.samples:
                sample.prompt, sample.tokens, sample.gaps_s = [], [], []


def main() -> None:
    """Send the load of the command line; print its figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__.partition("\n")[0])
    parser.add_argument("--base_url", "--base-url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", help="default: the server's first")
    parser.add_argument("--num_prompts", "--num-prompts", type=int, default=200)
    parser.add_argument("--max_concurrency", "--max-concurrency", type=int, default=100)
    parser.add_argument("--request_rate", "--request-rate", type=float, default=float("inf"))
    parser.add_argument("--input_len", "--random-input-len", type=int, default=32)
    parser.add_argument("--output_len", "--random-output-len", type=int, default=32)
    parser.add_argument("--vocab_size", type=int, default=250, help="tokens to draw prompts from (default: 250)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0, help="go on for so long, and report every minute")
    parser.add_argument("--leaving", type=float, default=0, help="part of the requests whose client leaves")
    parser.add_argument("--api_key", "--api-key", default="")
    parser.add_argument("--tokens", action="store_true", help="add prompts and answers to the figures")
    args = vars(parser.parse_args())
    with_tokens = args.pop("tokens")
    args["model"] = args["model"] or asyncio.run(_first_model(args["base_url"], args["api_key"]))
    generator = Generator(Load(**args))
    figures = asyncio.run(generator.run())
    if with_tokens:
        figures["answers"] = [[sample.prompt, sample.tokens] for sample in generator.samples]
    json.dump(figures, sys.stdout)
    print()


async def _first_model(base_url: str, api_key: str) -> str:
    import aiohttp

    head = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with aiohttp.ClientSession(headers=head) as session, session.get(f"{base_url}/v1/models") as answer:
        return str((await answer.json())["data"][0]["id"])


if __name__ == "__main__":
    main()
