"""How OpenAI-compatible servers differ, known beforehand or learned from what they refuse."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gateway.models.http import Endpoint


@dataclass(slots=True, kw_only=True)
class Habits:
    """One server's ways; rows are those of models 2.3.

    `limit` is the parameter for the longest answer, "" to send none (row 23). `keeps_tools`: it obeys
    `tool_choice: "none"`, so tools can stay in the prompt, and in the cache, when they may not be used.
    """

    limit: str = "max_tokens"
    streams: bool = True
    asks_usage: bool = True
    tools: bool = True
    keeps_tools: bool = False
    cache_key: bool = False
    cache_marks: bool = False
    alternates: bool = False
    blank_content: bool = False
    echoes_thoughts: bool = False
    short_ids: bool = False
    simple_schemas: bool = False
    pictures: bool = True

    @classmethod
    def of(cls, endpoint: Endpoint) -> Habits:
        """Return what is known of a server by its host and its model's name."""
        host, model = endpoint.host, endpoint.model.lower()
        where = f"{host} {model}"
        openai = host.endswith("api.openai.com")
        return cls(
            limit="max_completion_tokens" if openai else "max_tokens",
            keeps_tools=host.endswith(_OBEYS_NONE),
            cache_key=openai,
            cache_marks=host.endswith("openrouter.ai") and model.startswith(("anthropic/", "qwen/")),
            echoes_thoughts=re.search(r"deepseek|kimi|moonshot", where) is not None,
            short_ids=bool(
                re.search(
                    r"mistral|mixtral|codestral|devstral|ministral|magistral|pixtral", f"{host} {model}"
                )
            ),
            simple_schemas="gemini" in model or host.endswith("googleapis.com"),
        )

    def learn(self, refusal: str) -> bool:
        """Change one habit because of an error text; return whether there was one to change."""
        for pattern, habit, value in _LESSONS:
            if getattr(self, habit) != value and pattern.search(refusal):
                setattr(self, habit, value)
                return True
        return False


_OBEYS_NONE = (
    "api.openai.com",
    "api.deepseek.com",
    "openrouter.ai",
    "googleapis.com",
    "api.mistral.ai",
    "api.groq.com",
    "api.x.ai",
)


def _lesson(pattern: str, habit: str, value: object) -> tuple[re.Pattern[str], str, object]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL), habit, value


# The first that fits and changes something is tried, then the next: a 400 that stays is told to the person.
_LESSONS = (
    _lesson(r"stream_options", "asks_usage", False),  # row 22
    _lesson(r"image|vision|multimodal|multi-modal|unknown variant `?image", "pictures", False),
    _lesson(r"max_completion_tokens", "limit", "max_completion_tokens"),  # row 23
    _lesson(r"max_(completion_)?tokens|in the completion", "limit", ""),
    _lesson(r"prompt_cache_key", "cache_key", False),
    _lesson(r"cache_control", "cache_marks", False),
    _lesson(r"not support(ed)?\b.{0,30}\btool|\btools?\b.{0,30}not supported", "tools", False),  # row 29
    _lesson(r"tool_choice", "keeps_tools", False),
    _lesson(r"reasoning_content.{0,80}(miss|must|requir|pass)", "echoes_thoughts", True),  # rows 14, 15
    _lesson(r"(miss|must|requir).{0,80}reasoning_content", "echoes_thoughts", True),
    _lesson(r"reasoning_content", "echoes_thoughts", False),
    _lesson(r"alternat|consecutive|role 'user'.{0,40}after|unexpected role", "alternates", True),  # row 24
    _lesson(r"\bcontent\b.{0,80}(null|none|empty|string)", "blank_content", True),  # row 26
    _lesson(r"schema|function_declarations|function_parameters|unknown name", "simple_schemas", True),
    _lesson(r"tool[ _-]?(call|use)?[ _-]?ids?\b", "short_ids", True),  # row 11, session-08
    _lesson(r"\bstream(ing|ed)?\b.{0,80}(not|unsupported|verified)|verified to stream", "streams", False),
)
