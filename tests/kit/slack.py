"""A Slack that keeps what it is told: one channel with threads, and errors of its own. Other misbehaviour comes by script."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kit.receivers import Behaviour, FakeServer, Reply, Request


@dataclass
class Said:
    """One message, as it is now."""

    ts: str
    content: dict[str, Any]
    thread: str = ""
    edits: int = 0
    frozen: str = ""
    """The error with which an edit is refused."""

    @property
    def text(self) -> str:
        return str(self.content["text"])

    @property
    def title(self) -> str:
        return self.text.split("\n")[0]

    @property
    def delivery(self) -> str:
        return str(self.content["metadata"]["event_payload"]["delivery_id"])


@dataclass
class File:
    """Something that was uploaded; `thread` is empty until it is shared."""

    content: bytes = b""
    alt: str = ""
    title: str = ""
    thread: str = ""


@dataclass
class Channel:
    """What a person sees."""

    messages: list[Said] = field(default_factory=list)
    files: dict[str, File] = field(default_factory=dict)
    """By id."""

    @property
    def roots(self) -> list[Said]:
        return [said for said in self.messages if not said.thread]

    def thread(self, ts: str) -> list[Said]:
        return [said for said in self.messages if said.thread == ts]

    def find(self, ts: str) -> Said | None:
        return next((said for said in self.messages if said.ts == ts), None)

    def within(self, channel: str) -> list[Said]:
        """The messages of one channel, where there are several."""
        return [said for said in self.messages if said.content["channel"] == channel]


class FakeSlack(FakeServer):
    """chat.postMessage, chat.update, conversations.history, conversations.replies, and the three steps of an upload."""

    def __init__(
        self, script: Sequence[Behaviour] = (), *, clock: Callable[[], float] = lambda: 1_790_000_000.0, token: str = ""
    ) -> None:
        """`clock` is Slack's own; with a `token` no other is taken."""
        super().__init__(script)
        self.channel = Channel()
        self.token = token
        self._clock = clock
        self._count = 0

    @property
    def calls(self) -> list[str]:
        """The methods called, in order."""
        return [urlsplit(request.target).path.rpartition("/")[2] for request in self.requests]

    def serve(self, request: Request) -> Reply:
        target = urlsplit(request.target)
        method = target.path.rpartition("/")[2]
        if method in self.channel.files:
            assert "authorization" not in request.headers, "the token does not belong to where files go"
            self.channel.files[method].content = request.body
            return Reply(200, b"OK")
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return _json({"ok": False, "error": "token_revoked"})
        if request.method == "GET":
            asked = {name: values[0] for name, values in parse_qs(target.query).items()}
            return _json(self._reserved(asked) if method == "files.getUploadURLExternal" else self._listed(method, asked))
        body = request.json()
        if method == "files.completeUploadExternal":
            return _json(self._shared(body))
        return _json(self._posted(body) if method == "chat.postMessage" else self._edited(body))

    def _posted(self, body: dict[str, Any]) -> dict[str, Any]:
        thread = body.get("thread_ts", "")
        root = self.channel.find(thread) if thread else None
        if thread and (root is None or root.content["channel"] != body["channel"]):
            return {"ok": False, "error": "thread_not_found"}
        self._count += 1
        # Slack's names are times; by default the rows of tests are of the same age or older.
        said = Said(f"{self._clock():.0f}.{self._count:06d}", body, thread)
        self.channel.messages.append(said)
        return {"ok": True, "ts": said.ts}

    def _edited(self, body: dict[str, Any]) -> dict[str, Any]:
        said = self.channel.find(body["ts"])
        if said is None or said.content["channel"] != body["channel"]:
            return {"ok": False, "error": "message_not_found"}
        if said.frozen:
            return {"ok": False, "error": said.frozen}
        said.content = body
        said.edits += 1
        return {"ok": True, "ts": said.ts}

    def _reserved(self, asked: dict[str, str]) -> dict[str, Any]:
        id_ = f"F{len(self.channel.files):08d}"
        self.channel.files[id_] = File(alt=asked["alt_txt"])
        return {"ok": True, "upload_url": f"{self.url}/upload/{id_}", "file_id": id_}

    def _shared(self, body: dict[str, Any]) -> dict[str, Any]:
        for each in body["files"]:
            found = self.channel.files.get(each["id"])
            if found is None or not found.content:
                return {"ok": False, "error": "file_not_found"}
            found.title, found.thread = each["title"], body["thread_ts"]
        return {"ok": True, "files": body["files"]}

    def _listed(self, method: str, asked: dict[str, str]) -> dict[str, Any]:
        if method == "conversations.replies":
            root = self.channel.find(asked["ts"])
            if root is None:
                return {"ok": False, "error": "thread_not_found"}
            found = [root, *self.channel.thread(root.ts)]
        else:
            found = [said for said in self.channel.messages if not said.thread or said.content.get("reply_broadcast")]
        seen = [said for said in found if float(said.ts) >= float(asked["oldest"])]
        return {"ok": True, "messages": [_shown(said) for said in seen]}


def _shown(said: Said) -> dict[str, Any]:
    thread = {"thread_ts": said.thread} if said.thread else {}
    return {"ts": said.ts, "text": said.text, "metadata": said.content.get("metadata"), **thread}


def _json(body: dict[str, Any]) -> Reply:
    return Reply(200, json.dumps(body).encode())
