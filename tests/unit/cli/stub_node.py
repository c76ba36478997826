"""Stands in for `warrenmq server`: reads node.conf, accepts on the AMQP port, answers /readyz."""

from __future__ import annotations

import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

conf = dict(
    line.split(" = ", 1)
    for line in Path(sys.argv[sys.argv.index("--conf") + 1]).read_text().splitlines()
)
if conf.get("heartbeat") == "13":
    sys.exit("heartbeat 13 is bad luck")


class Ready(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_):
        return


def port(key):
    return int(conf[key].rpartition(":")[2])


class Amqp(socketserver.TCPServer):
    allow_reuse_address = True


amqp = Amqp(("127.0.0.1", port("listeners.tcp.default")), socketserver.BaseRequestHandler)
threading.Thread(target=amqp.serve_forever, daemon=True).start()
HTTPServer(("127.0.0.1", port("management.tcp.port")), Ready).serve_forever()
