# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""OpenAI requests in, vLLM's answers and errors out, as plain dictionaries."""

from __future__ import annotations

import re
import typing
import uuid

Body = dict[str, typing.Any]
# What vLLM takes for /v1/completions when the caller names no max_tokens.
DEFAULT_MAX_TOKENS = 16


class ApiError(Exception):
    """A refusal with the status and the error object that vLLM answers."""

    def __init__(
        self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


class Prompt(typing.NamedTuple):
    """One prompt and the wish for its answer."""

    text: str
    tokens: int


class Job(typing.NamedTuple):
    """One request, read: every prompt gets ``answers`` answers of at most ``max_tokens`` tokens."""

    chat: bool
    model: str
    prompts: list[Prompt]
    answers: int
    max_tokens: int
    stream: bool
    usage_at_end: bool
    ignore_end: bool
    name: str
    logprobs: bool = False


def words(text: str) -> list[str]:
    """Cut a text into the double's tokens: words with the space before them."""
    return re.findall(r"\s*\S+", text)


def _prompt(value: typing.Any) -> Prompt:
    if isinstance(value, str):
        return Prompt(value, max(1, len(words(value))))
    return Prompt("", len(value))


def _completion_prompts(body: Body) -> list[Prompt]:
    value = body.get("prompt")
    if value in (None, "", []):
        raise ApiError(
            400, "Either prompt or prompt_embeds must be provided and non-empty.", param="prompt"
        )
    if isinstance(value, str):
        return [_prompt(value)]
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return [_prompt(value)]
    if isinstance(value, list) and all(isinstance(item, (str, list)) for item in value):
        return [_prompt(item) for item in value]
    raise ApiError(400, "prompt must be text or token ids", param="prompt")


def _chat_prompts(body: Body) -> list[Prompt]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages: a non-empty list is required", param="messages")
    texts = []
    for message in messages:
        if not isinstance(message, dict) or "role" not in message:
            raise ApiError(400, "messages: each needs a role and content", param="messages")
        content = message.get("content") or ""
        if isinstance(content, list):
            content = " ".join(str(part.get("text", "")) for part in content)
        texts.append(str(content))
    return [Prompt(texts[-1], sum(len(words(text)) + 1 for text in texts))]


def _whole(body: Body, name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise ApiError(400, f"{name}: Input should be a valid integer", param=name)
    if value < 1:
        raise ApiError(
            400,
            f"{name} must be at least 1, got {value}. (parameter={name}, value={value})",
            param=name,
        )
    return value


def read(body: typing.Any, chat: bool, models: list[str], max_model_len: int) -> Job:
    """Check a request as vLLM does and return it; raise ApiError."""
    if not isinstance(body, dict):
        raise ApiError(400, "the body must be a JSON object", "Bad Request", "body")
    model = body.get("model") or models[0]
    if model not in models:
        raise ApiError(
            404,
            f"The model `{model}` does not exist. Valid aliases: {', '.join(models)}.",
            "NotFoundError",
            "model",
        )
    prompts = _chat_prompts(body) if chat else _completion_prompts(body)
    longest = max(prompt.tokens for prompt in prompts)
    room = max_model_len - longest
    name = "max_completion_tokens" if body.get("max_completion_tokens") else "max_tokens"
    limit = _whole(body, name, max(1, room if chat else min(room, DEFAULT_MAX_TOKENS)))
    if limit > max_model_len:
        raise ApiError(
            400,
            f"{name}={limit} cannot be greater than max_model_len={max_model_len}. Please request "
            f"fewer output tokens. (parameter={name}, value={limit})",
            param=name,
        )
    if limit > room:
        raise ApiError(
            400,
            f"This model's maximum context length is {max_model_len} tokens. However, you "
            f"requested {limit} output tokens and your prompt contains {longest} input tokens.",
            param="input_tokens",
        )
    options = body.get("stream_options") or {}
    return Job(
        chat=chat,
        model=model,
        prompts=prompts,
        answers=_whole(body, "n", 1),
        max_tokens=limit,
        stream=bool(body.get("stream")),
        usage_at_end=bool(options.get("include_usage")),
        ignore_end=bool(body.get("ignore_eos")),
        name=("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex[:16],
        logprobs=body.get("prompt_logprobs") is not None,
    )


def plan_answer(job: Job, answer: str) -> tuple[list[str], str]:
    """Return the tokens of an answer within the request's limit, and why it ends."""
    tokens = words(answer)
    if job.ignore_end:
        tokens = [tokens[index % len(tokens)] for index in range(job.max_tokens)]
        return tokens, "length"
    if len(tokens) > job.max_tokens:
        return tokens[: job.max_tokens], "length"
    return tokens, "stop"


def usage(job: Job, made: int) -> Body:
    """Return the token counts of a request."""
    prompt = sum(item.tokens for item in job.prompts)
    return {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made}


def _head(job: Job, created: int, kind: str) -> Body:
    return {"id": job.name, "object": kind, "created": created, "model": job.model}


def whole_answer(
    job: Job, created: int, texts: list[tuple[str, str]], made: int, fingerprint: str
) -> Body:
    """Return the answer of a request that does not stream; ``texts`` are (text, finish) pairs."""
    choices: list[Body] = []
    for index, (text, finish) in enumerate(texts):
        choice: Body = {
            "index": index,
            "logprobs": None,
            "finish_reason": finish,
            "stop_reason": None,
        }
        if job.chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        if job.logprobs:
            # Every token is as likely as any: nothing is computed here.
            choice["prompt_logprobs"] = [None, *([{"0": {"logprob": -1.0}}] * 4)]
        choices.append(choice)
    kind = "chat.completion" if job.chat else "text_completion"
    return {
        **_head(job, created, kind),
        "choices": choices,
        "system_fingerprint": fingerprint,
        "usage": usage(job, made),
    }


def first_chunk(job: Job, created: int, index: int) -> Body:
    """Return the chat stream's opening chunk, which carries the role alone."""
    delta = {"role": "assistant", "content": ""}
    return {
        **_head(job, created, "chat.completion.chunk"),
        "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}],
    }


def chunk(job: Job, created: int, index: int, token: str, finish: str | None) -> Body:
    """Return one token of a stream."""
    choice: Body = {"index": index, "logprobs": None, "finish_reason": finish}
    if job.chat:
        choice["delta"] = {"content": token}
    else:
        choice["text"] = token
    kind = "chat.completion.chunk" if job.chat else "text_completion"
    return {**_head(job, created, kind), "choices": [choice]}


def last_chunk(job: Job, created: int, made: int, fingerprint: str) -> Body:
    """Return the chunk without choices that closes a stream with its token counts."""
    kind = "chat.completion.chunk" if job.chat else "text_completion"
    return {
        **_head(job, created, kind),
        "choices": [],
        "usage": usage(job, made),
        "system_fingerprint": fingerprint,
    }


def model_list(models: list[str], root: str, max_model_len: int, created: int) -> Body:
    """Return what /v1/models answers."""
    data = [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": root,
            "parent": None,
            "max_model_len": max_model_len,
        }
        for name in models
    ]
    return {"object": "list", "data": data}
