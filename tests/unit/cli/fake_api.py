"""A management API that answers from a table and writes down what it was asked."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeApi:
    """`answers` maps (method, path) to (status, JSON), or to several of them in order, the last of
    which stays; everything else is 404."""

    def __init__(self):
        self.answers = {}
        self.asked = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append((self.command, self.path, json.loads(body) if body else None))
                outer.headers = self.headers
                missing = (404, {"error": "Object Not Found", "reason": "Not Found"})
                found = outer.answers.get((self.command, self.path), missing)
                if isinstance(found, list):
                    found = found.pop(0) if len(found) > 1 else found[0]
                status, value = found
                data = b"" if value is None else json.dumps(value).encode()
                self.send_response(status)
                if status == 429:
                    self.send_header("Retry-After", "0")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - the standard library's names

            def log_message(self, *_):
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
