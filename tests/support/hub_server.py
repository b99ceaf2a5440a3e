"""The few endpoints of the Hugging Face Hub that storing and reading files uses.

Files above 100 kB go through git-lfs with a plain PUT, as on the Hub without Xet.
"""

import base64
import hashlib
import http.server
import json
from urllib.parse import unquote


class HubServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, token: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.token = token
        self.blobs: dict[str, bytes] = {}
        self.commits: dict[str, list[tuple[str, dict[str, bytes]]]] = {}
        self.fail_lfs = False

    def files(self, repo: str) -> dict[str, bytes]:
        """What the newest commit holds."""
        return self.commits[repo][-1][1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            return self.answer(401, {"error": "Invalid credentials"})
        parts = unquote(self.path).split("?")[0].strip("/").split("/")
        if parts == ["api", "repos", "create"]:
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            self.server.commits.setdefault(name, [])
            return self.answer(200, {"url": f"{self.server.url}/{name}", "name": name})
        if parts[-2:] == ["objects", "batch"]:
            return self.lfs_batch(json.loads(body))
        repo = "/".join(parts[2:4])
        if parts[4] == "preupload":
            files = [
                {"path": f["path"], "shouldIgnore": False,
                 "uploadMode": "lfs" if f["size"] > 100_000 else "regular"}
                for f in json.loads(body)["files"]
            ]  # fmt: skip
            return self.answer(200, {"files": files})
        return self.commit(repo, [json.loads(line) for line in body.splitlines()])

    def lfs_batch(self, asked: dict) -> None:
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.server.url}/lfs/{one['oid']}"}}}
            for one in asked["objects"]
        ]
        self.answer(200, {"transfer": "basic", "objects": objects})

    def commit(self, repo: str, lines: list[dict]) -> None:
        files = dict(self.server.commits[repo][-1][1]) if self.server.commits[repo] else {}
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        commits = self.server.commits[repo]
        oid = hashlib.sha1(f"{repo} {len(commits)}".encode()).hexdigest()
        commits.append((oid, files))
        url = f"{self.server.url}/{repo}/commit/{oid}"
        self.answer(200, {"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.fail_lfs:
            return self.answer(403, {"error": "Forbidden"})
        assert hashlib.sha256(content).hexdigest() == self.path.rsplit("/", 1)[1]
        self.server.blobs[self.path.rsplit("/", 1)[1]] = content
        return self.answer(200, {})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = unquote(self.path).split("?")[0].strip("/").split("/")
        repo = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if not self.server.commits.get(repo):
            return self.answer(404, {"error": "Repository not found"},
                               {"X-Error-Code": "RepoNotFound"})  # fmt: skip
        oid, files = self.server.commits[repo][-1]
        if parts[0] != "api":
            content = files.get("/".join(parts[4:]))
            if content is None:
                return self.answer(404, {"error": "Entry not found"},
                                   {"X-Error-Code": "EntryNotFound"})  # fmt: skip
            return self.file(oid, content)
        if len(parts) > 5 and parts[5] not in ("main", oid):
            return self.answer(404, {"error": "Revision"}, {"X-Error-Code": "RevisionNotFound"})
        siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
        return self.answer(200, {"id": repo, "sha": oid, "private": False, "siblings": siblings})

    def file(self, oid: str, content: bytes) -> None:
        etag = hashlib.sha256(content).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": oid, "Content-Type": "bytes"}
        self.answer(200, content, headers)

    def answer(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass
