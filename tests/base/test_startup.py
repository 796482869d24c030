"""The log, as NEURON_RT_LOG_LEVEL and NEURON_RT_LOG_LOCATION ask."""

from __future__ import annotations

import logging
import os
import socket
import warnings

import pytest

from optimum_neuron.base import startup
from optimum_neuron.errors import ConfigError
from tests.raising import raises


@pytest.fixture
def logger(monkeypatch):
    """The package's logger, as a program finds it that has configured no logging."""
    logger = logging.getLogger("optimum_neuron")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(logger, "disabled", False)
    before = logger.level
    yield logger
    logger.setLevel(before)


def test_level_shows_and_hides_messages(logger, capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    startup.configure_log({"NEURON_RT_LOG_LEVEL": "info"})
    logging.getLogger("optimum_neuron.runtime").info("loaded")
    logging.getLogger("optimum_neuron.runtime").debug("too much")
    assert capsys.readouterr().err.rstrip().endswith("INFO optimum_neuron.runtime: loaded")
    startup.configure_log({"NEURON_RT_LOG_LEVEL": "ERROR"})
    logging.getLogger("optimum_neuron.runtime").warning("hidden")
    assert capsys.readouterr().err == ""


def test_without_variables_program_decides(logger):
    startup.configure_log({})
    assert (logger.handlers, logger.level, logger.propagate) == ([], logging.NOTSET, True)


def test_configured_logging_receives_messages(logger, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger(), "handlers", [caplog.handler])
    startup.configure_log({"NEURON_RT_LOG_LEVEL": "DEBUG"})
    logger.debug("details")
    assert logger.handlers == [] and caplog.messages == ["details"]


def test_system_log_gets_messages(logger, tmp_path, monkeypatch):
    address = str(tmp_path / "log")
    monkeypatch.setattr(startup, "_SYSLOG_SOCKET", address)
    with raises(ConfigError, variable="NEURON_RT_LOG_LOCATION"):
        startup.configure_log({"NEURON_RT_LOG_LOCATION": "SYSLOG"})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as system:
        system.bind(address)
        system.settimeout(10)
        startup.configure_log({"NEURON_RT_LOG_LOCATION": "syslog", "NEURON_RT_LOG_LEVEL": "WARNING"})
        logger.warning("to the system")
        assert b"to the system" in system.recv(4096)
        logger.handlers[0].close()


@pytest.mark.parametrize("values", [{"NEURON_RT_LOG_LEVEL": "LOUD"}, {"NEURON_RT_LOG_LOCATION": "/tmp/log"}])
def test_invalid_value_is_an_error(values):
    with pytest.raises(ConfigError):
        startup.configure_log(values)


def test_first_hardware_use_applies_environment_once(logger, monkeypatch):
    from optimum_neuron.hardware import resolve_target

    startup.apply_environment.cache_clear()
    monkeypatch.setattr(startup, "_warned", set())
    monkeypatch.setenv("NEURON_RT_LOG_LEVEL", "DEBUG")
    monkeypatch.setenv("NEURON_FUSE_SOFTMAX", "1")
    with pytest.warns(UserWarning, match="NEURON_FUSE_SOFTMAX"):
        resolve_target()
    assert logger.level == logging.DEBUG
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve_target()
        resolve_target(environ={**os.environ, "NEURON_PARALLEL_COMPILE": "1"})
