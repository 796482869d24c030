"""`optimum.neuron.cache.hub_cache`: caches on the Hub."""

from __future__ import annotations

import random
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError
from optimum.neuron._log import logger
from optimum.neuron._names import NAMES

from optimum_neuron.base.doors import open_doors
from optimum_neuron.compiler.cache import CompileCache, shared_url
from optimum_neuron.errors import CacheError, ConfigError

_SYNC_MAX_RETRIES = 5
_SYNC_BASE_WAIT_SECS = 1.0
_SYNC_MAX_WAIT_SECS = 30.0
_CONFLICTS = (409, 412)
"""HTTP status of a commit that another one was faster than."""


class CompileCacheHfProxy:
    """A compile cache on this machine with a repository on the Hub that it is copied to.

    Args:
        repo_id: the repository.
        default_cache: the cache on this machine.
        endpoint: address of the Hub; None: the public one, or HF_ENDPOINT.
        token: Hub token; None uses the login's.

    Raises:
        CacheError: the repository does not exist, or cannot be reached.
    """

    cache_type = "hf"

    def __init__(
        self, repo_id: str, default_cache: CompileCache, endpoint: str | None = None, token: str | None = None
    ) -> None:
        self.repo_id = repo_id
        self.default_cache = default_cache
        self.api = HfApi(endpoint=endpoint, token=token)
        try:
            exists = self.api.repo_exists(repo_id)
        except Exception as error:
            message = f"The repository {repo_id} cannot be reached: {type(error).__name__}: {error}"
            raise CacheError(message, hint="Check the network and the login.", repo_id=repo_id) from error
        if not exists:
            message = f"The repository {repo_id} does not exist, or the token may not read it."
            raise CacheError(message, hint=f"Run `optimum-cli neuron cache create -n {repo_id}`.", repo_id=repo_id)

    @property
    def cache_path(self) -> str:
        """Folder of the cache on this machine."""
        return self.default_cache.cache_path

    def synchronize(self, non_blocking: bool = False) -> Future[Any] | None:
        """Copy the cache of this machine to the repository.

        Args:
            non_blocking: copy in the background, and return a future.

        Raises:
            HfHubHTTPError: the Hub refuses the commit, or others were faster several times.
        """
        if non_blocking:
            return self.api.run_as_future(self._upload_folder_with_retry)
        self._upload_folder_with_retry()
        return None

    @staticmethod
    def _is_commit_conflict(error: HfHubHTTPError) -> bool:
        """Whether a commit failed because another one came first."""
        return error.response is not None and error.response.status_code in _CONFLICTS

    def _upload_folder_with_retry(self) -> None:
        """Upload the folder on top of the newest commit; after a conflict, wait and try again."""
        wait_s = _SYNC_BASE_WAIT_SECS
        for attempt in range(_SYNC_MAX_RETRIES + 1):
            newest = self.api.model_info(self.repo_id).sha
            try:
                self.api.upload_folder(
                    repo_id=self.repo_id,
                    folder_path=self.cache_path,
                    commit_message="Synchronizing local compiler cache.",
                    ignore_patterns="lock",
                    parent_commit=newest,
                )
                return
            except HfHubHTTPError as error:
                if attempt == _SYNC_MAX_RETRIES or not self._is_commit_conflict(error):
                    raise
            # A random part, so that machines that wait for each other do not meet again.
            pause_s = min(_SYNC_MAX_WAIT_SECS, wait_s * random.uniform(0.5, 1.5))
            logger.warning("Another commit to %s came first. The next try is in %.1f s.", self.repo_id, pause_s)
            time.sleep(pause_s)
            wait_s *= 2


def create_hub_compile_cache_proxy(
    cache_url: str | Path | None = None, cache_repo_id: str | None = None
) -> CompileCacheHfProxy:
    """Return the compile cache with the repository that it is copied to.

    Args:
        cache_url: the cache on this machine; None asks NEURON_COMPILE_CACHE_URL.
        cache_repo_id: the repository; None: the chosen one.

    Raises:
        ConfigError: no repository was chosen.
        CacheError: it cannot be reached.
    """
    repo_id = cache_repo_id or shared_url().value
    if repo_id is None:
        message = "No shared cache was chosen."
        raise ConfigError(message, hint="Pass cache_repo_id, or run `optimum-cli neuron cache set NAME`.")
    return CompileCacheHfProxy(repo_id.removeprefix("hf://"), CompileCache(cache_url))


__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
