"""The HTTP API of the broker that a job is configured for."""

from __future__ import annotations

from pipeline.command.configuration import Config
from pipeline.wire import urls
from pipeline.wire.connection import Tls
from pipeline.wire.management import Management


def opened(config: Config) -> tuple[Management, str]:
    """A client of it, to be closed, and the vhost of the job.

    The login is that of the first URL, unless `user` and `password` say another.

    Args:
        config: Of the job; it has an `httpUrl`.
    """
    given = config.connector()
    login = urls.parse(given["url"].split(",")[0])
    user = given.get("user") or login.user
    password = given.get("password", login.password)
    nodes = [
        urls.parse_http(url)._replace(user=user, password=password)
        for url in given["httpUrl"].split(",")
    ]
    tls = Tls(config.text("cacertfile"), config.text("certfile"), config.text("keyfile"))
    return Management(nodes, login.vhost, tls), login.vhost
