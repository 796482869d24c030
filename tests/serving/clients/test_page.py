"""The chat page in headless Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import aiohttp
import pytest

from tests.serving.conftest import KEY

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


@pytest.fixture
def browser(tmp_path):
    """Address of a browser's DevTools."""
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command = [CHROMIUM, *flags, f"--user-data-dir={tmp_path}", "--remote-debugging-port=0", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if line.startswith("DevTools listening on ws://"):
                    yield line.split("ws://")[1].split("/")[0]
                    break
        finally:
            process.kill()


class Page:
    """A tab of the browser."""

    def __init__(self, socket):
        self._socket, self._number = socket, 0

    async def call(self, method, **parameters):
        """Return the result of a method of the protocol."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while (answer := await self._socket.receive_json(timeout=30)).get("id") != self._number:
            pass
        return answer["result"]

    async def value(self, expression):
        """Return the value of a JavaScript expression."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    async def until(self, expression):
        """Wait for an expression to be true."""
        for _ in range(600):
            if await self.value(expression):
                return
            await asyncio.sleep(0.05)
        raise TimeoutError(expression)


async def chat(address, url, screenshot):
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/json/list") as answer:
            tab = next(one for one in json.loads(await answer.text()) if one["type"] == "page")
        async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            page = Page(socket)
            await page.call("Page.navigate", url=url)
            await page.until("document.getElementById('form') !== null && document.readyState === 'complete'")
            await page.value(f"key.value = {KEY!r}; key.dispatchEvent(new Event('change'))")
            await page.until("model.options.length > 0")
            models = await page.value("[...model.options].map(option => option.value)")
            await page.value("text.value = 'Hello'; form.requestSubmit()")
            await page.until("messages.length === 2")
            lines = await page.value("[...log.children].map(line => [line.className, line.textContent])")
            picture = (await page.call("Page.captureScreenshot"))["data"]
            Path(screenshot).write_bytes(base64.b64decode(picture))
            return models, lines


def test_a_chat_in_the_browser(browser, url, tmp_path, client):
    screenshot = os.environ.get("CHAT_SCREENSHOT", str(tmp_path / "chat.png"))
    models, lines = asyncio.run(chat(browser, url, screenshot))
    assert models == ["tiny"]
    assert [kind for kind, _ in lines] == ["user", "assistant", "facts"]
    assert lines[0][1] == "Hello" and lines[1][1]
