"""The section `[exec]`: what may stand in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import config
from gateway.errors import ConfigError


def read(text: str) -> config.ExecSettings:
    return config.parse(f"[exec]\n{text}\n", {}, Path("/")).exec


def test_commands_ask_by_themselves_unless_a_sandbox_works() -> None:
    found = read("")
    assert (found.mode, found.sandbox, found.network, found.timeout) == ("auto", "auto", False, 60)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('mode = "yes"', "exec.mode"),
        ("timeout = 1801", "exec.timeout"),
        ("timeout = 0", "exec.timeout"),
        ("max_output = 10", "exec.max_output"),
        ('allow = [""]', "must begin with a program"),
        ('allow = ["* rm"]', "must begin with a program"),
        ('env = ["LD_PRELOAD"]', "can't be passed on"),
        ('env = ["PATH"]', "can't be passed on"),
        ('env = ["A B"]', "no environment variable's name"),
        ('readable = ["tools"]', "must be the absolute path"),
        ('readable = ["/"]', "must be the absolute path"),
        ('readable = ["/proc/"]', "must be the absolute path"),
        ("sandbx = 1", "did you mean exec.sandbox"),
    ],
)
def test_what_can_not_be_is_said(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(text)


def test_paths_are_put_straight() -> None:
    assert read('readable = ["/opt//tools/../tools/"]').readable == ("/opt/tools",)
