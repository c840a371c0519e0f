"""A Grafana on loopback, as its HTTP API is documented: tokens with roles, folders, dashboards with versions, data sources.

Not Grafana: what it does with a dashboard's contents is not here. What is here: uids, versions and overwriting, the folder a
dashboard is in, provisioned dashboards, and the answers 400, 401, 403, 404 and 412.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


class No(Exception):
    """An answer that refuses."""

    def __init__(self, code: int, **body: Any) -> None:
        super().__init__(str(body))
        self.code = code
        self.body = body


class FakeGrafana:
    """Remembers what was written, in `writes`. Change its fields to set the scene."""

    def __init__(self) -> None:
        self.tokens = {"glsa_editor": "Editor", "glsa_viewer": "Viewer", "glsa_admin": "Admin"}
        self.folders: dict[str, Json] = {}
        self.dashboards: dict[str, Json] = {}
        self.datasources: list[Json] = [{"uid": "prom", "type": "prometheus", "name": "Prometheus"}]
        self.healthy = True
        self.writes: list[tuple[str, str, Json]] = []
        self.before_write: Callable[[], None] = lambda: None
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else {}
                try:
                    answer: Any = fake.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
                    status = 200
                except No as no:
                    status, answer = no.code, no.body
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = _serve

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, authorization: str, body: Json) -> Any:
        role = self.tokens.get(authorization.removeprefix("Bearer "))
        if role is None:
            raise No(401, message="Invalid API key", messageId="api-key.invalid", statusCode=401)
        if method != "GET":
            self.before_write()
            if role == "Viewer":
                raise No(403, message="You'll need additional permissions to perform this action.", accessErrorId="ACE1")
            self.writes.append((method, path, body))
        if match := re.fullmatch(r"/api/datasources(?:/uid/([^/]+)(/health)?)?", path):
            return self._datasource(role, match[1], bool(match[2]))
        if match := re.fullmatch(r"/api/folders(?:/([^/]+))?", path):
            return self._folder(method, match[1], body)
        if match := re.fullmatch(r"/api/dashboards/uid/([^/]+)", path):
            return self._dashboard(match[1])
        if (method, path) == ("POST", "/api/dashboards/db"):
            return self._save(body)
        raise No(404, message="Not found")

    def _datasource(self, role: str, uid: str | None, health: bool) -> Any:
        if role != "Admin":
            raise No(403, message="You'll need additional permissions to perform this action.", accessErrorId="ACE2")
        if uid is None:
            return self.datasources
        found = next((each for each in self.datasources if each["uid"] == uid), None)
        if found is None:
            raise No(404, message="Data source not found")
        if not health:
            return dict(found)
        if not self.healthy:
            raise No(400, status="ERROR", message="connection refused")
        return {"status": "OK", "message": "Successfully queried the Prometheus API."}

    def _folder(self, method: str, uid: str | None, body: Json) -> Json:
        if method == "POST":
            if body["uid"] in self.folders:
                raise No(412, message="the folder has been changed by someone else")
            self.folders[body["uid"]] = {"id": len(self.folders) + 1, **body, "version": 1}
            return dict(self.folders[body["uid"]])
        if uid not in self.folders:
            raise No(404, message="folder not found", status="not-found")
        folder = self.folders[uid]
        if method == "PUT":
            if body.get("version") != folder["version"] and not body.get("overwrite"):
                raise No(412, message="the folder has been changed by someone else", status="version-mismatch")
            folder |= {"title": body["title"], "version": folder["version"] + 1}
        return dict(folder)

    def _dashboard(self, uid: str) -> Json:
        if uid not in self.dashboards:
            raise No(404, message="Dashboard not found")
        kept = self.dashboards[uid]
        title = self.folders.get(kept["folderUid"], {}).get("title", "")
        meta = {"folderUid": kept["folderUid"], "folderTitle": title, **kept.get("meta", {})}
        return {"dashboard": kept["dashboard"], "meta": meta}

    def _save(self, body: Json) -> Json:
        made, folder = body["dashboard"], body.get("folderUid", "")
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", made.get("uid", "")):
            raise No(400, message="uid contains illegal characters")
        if not made.get("title"):
            raise No(400, message="Dashboard title cannot be empty", status="empty-name")
        if folder and folder not in self.folders:
            raise No(404, message="folder not found", status="not-found")
        kept = self.dashboards.get(made["uid"])
        if kept is None and made.get("id"):
            raise No(404, message="Dashboard not found", status="not-found")
        if kept is not None:
            if kept.get("meta", {}).get("provisioned"):
                raise No(400, message="Cannot save provisioned dashboard")
            if made.get("version") != kept["dashboard"]["version"] and not body.get("overwrite"):
                raise No(412, message="The dashboard has been changed by someone else", status="version-mismatch")
        others = [uid for uid, each in self.dashboards.items() if uid != made["uid"] and each["folderUid"] == folder]
        if any(self.dashboards[uid]["dashboard"]["title"] == made["title"] for uid in others):
            raise No(412, message="A dashboard with the same name in the folder already exists", status="name-exists")
        number = kept["dashboard"]["version"] + 1 if kept else 1
        stored = {**made, "id": len(self.dashboards) + 1, "version": number, "preload": False}
        self.dashboards[made["uid"]] = {"dashboard": stored, "folderUid": folder, "message": body.get("message", "")}
        return {"id": stored["id"], "uid": made["uid"], "status": "success", "version": number, "slug": "x", "url": "/d/x"}
