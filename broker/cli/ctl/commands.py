"""`warrenmq ctl`: finds the node, runs the command, prints as rabbitmqctl, exits with its codes.

A node is found by --url; else by -n in the local cluster of --dir or WARRENMQ_DIR, where no -n
means the first node that answers; else it is http://127.0.0.1:15672.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from typing_extensions import override

from broker.cli.cluster.layout import HOST, Layout, LayoutError
from broker.cli.ctl import arguments, listings, offline, output
from broker.cli.ctl.absent import ABSENT
from broker.cli.ctl.api import (
    EXIT_NO_HOST,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    Api,
    CtlError,
    UsageError,
)
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.help import usage
from broker.cli.ctl.listings import LISTINGS
from broker.cli.ctl.node.credentials import GUEST, Credentials, of_node
from broker.cli.ctl.status import DESCRIPTIONS
from broker.cli.ctl.table import CHANGES

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_DEFAULT_URL = f"http://{HOST}:15672"
_DEFAULT_TIMEOUT_S = 60.0
_TIMEOUTS_S = {"import_definitions": 3600.0}
"""Of commands that may take longer: tens of thousands of queues take minutes."""

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class _Ctl(click.Command):
    """A command that takes its options apart by itself, and completes them likewise."""

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from broker.cli.ctl.help.completion import candidates

        return candidates(ctx.params.get("words") or (), incomplete, _tool(ctx))


def _complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return ctx.command.shell_complete(ctx, incomplete)


def _tool(ctx: click.Context) -> str:
    """What the program is called: `warrenmq ctl`, or one of RabbitMQ's names."""
    return usage.PROGRAM if ctx.parent is not None else ctx.info_name or usage.PROGRAM


@click.command(
    "ctl",
    cls=_Ctl,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, shell_complete=_complete)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Rabbitmqctl's commands, over HTTP."""
    sys.exit(run(words, os.environ, _tool(ctx)))


def run(words: Sequence[str], environ: Mapping[str, str], tool: str = usage.PROGRAM) -> int:
    """Run one command line.

    Args:
        words: What stands after `warrenmq ctl`.
        environ: The environment: WARRENMQ_DIR, WARRENMQ_URL, WARRENMQ_USER, WARRENMQ_PASSWORD;
            for a node on this machine also what `node.credentials` names.
        tool: What the program is called: one of RabbitMQ's names lists that tool's commands.

    Returns:
        The exit code, as rabbitmqctl's.
    """
    formatter = node = ""
    try:
        call = arguments.parse(words)
        formatter, node = call.values.get("formatter", "tab"), call.values.get("node", "")
        helped = _help(call, tool)
        if helped is not None:
            return helped
        if offline.is_offline(call):
            click.echo(output.answered(formatter, offline.run(call, environ), node))
            return 0
        _check(call, tool)
        api, node = find_node(call, environ)
        _execute(api, node, call)
    except UsageError as error:
        text = usage.misuse(error.text, words, arguments.parse(words).command, tool)
        click.echo(output.failed(formatter, text, node), err=True)
        return error.exit_code
    except CtlError as error:
        text = error.text if error.is_plain else f"Error:\n{error.text}"
        click.echo(output.failed(formatter, text, node), err=True)
        return error.exit_code
    except BrokenPipeError:
        return 0
    return 0


def _help(call: Invocation, tool: str) -> int | None:
    """Answer what asks for help; None for a command that is to be run.

    Raises:
        CtlError: 64, help on what is no command.
    """
    if call.command == "autocomplete":
        begun = call.arguments[0] if call.arguments else ""
        click.echo(
            "".join(f"{name}\n" for name in usage.names(tool) if name.startswith(begun)), nl=False
        )
        return 0
    if call.command and call.command != "help":
        if "help" not in call.flags:
            return None
        click.echo(usage.of_command(call.command, tool))
        return 0
    if call.command == "help" and call.arguments:
        click.echo(usage.of_command(call.arguments[0], tool))
        return 0
    click.echo(usage.overview(tool))
    return 0 if call.command or "help" in call.flags else EXIT_USAGE


def find_node(call: Invocation, environ: Mapping[str, str]) -> tuple[Api, str]:
    """The API to talk to, and what to call its node in banners.

    Args:
        call: Its options url, node, dir, user, password and timeout count.
        environ: The environment.

    Raises:
        CtlError: 68 no such node in the local cluster, 69 none of its nodes answers.
    """
    named = None if call.command == "list_user_limits" else call.values.get("user")
    user = call.values.get("login") or named or environ.get("WARRENMQ_USER")
    password = call.values.get("password") or environ.get("WARRENMQ_PASSWORD")
    timeout_s = call.timeout_s or _TIMEOUTS_S.get(call.command, _DEFAULT_TIMEOUT_S)

    def api(url: str, default: Credentials = GUEST) -> Api:
        return Api(url, user or default.user, password or default.password, timeout_s)

    name = call.values.get("node")
    url = call.values.get("url") or environ.get("WARRENMQ_URL")
    if url:
        return api(url), name or url
    layout = Layout(call.values.get("dir") or environ.get("WARRENMQ_DIR") or ".warrenmq")
    if not layout.exists:
        if name is not None and "@" in name and not name.endswith("@localhost"):
            host = name.partition("@")[2]
            return api(f"http://{host}:15672"), name
        # Whoever says who it is says all of it: another's password would be none.
        own = of_node(environ) if user is None and password is None else GUEST
        return api(_DEFAULT_URL, own), name or "rabbit@localhost"
    try:
        places = [layout.node(name)] if name else layout.nodes()
    except LayoutError as error:
        raise CtlError(EXIT_NO_HOST, str(error)) from error
    for place in places:
        found = api(f"http://{HOST}:{place.management_port}")
        if len(places) == 1 or _answers(found):
            return found, place.full_name
    raise CtlError(EXIT_UNAVAILABLE, f"no node of {layout.directory} answers")


def _answers(api: Api) -> bool:
    probe = Api(api.url, "", "", 2.0)  # a paused node accepts and never answers
    try:
        probe.status_of("/healthz")
    except CtlError:
        return False
    return True


def _check(call: Invocation, tool: str) -> None:
    """Refuse what is no command, or has the wrong number of arguments, before any request."""
    name = call.command
    formatter = call.values.get("formatter", "tab")
    if formatter not in output.FORMATTERS:
        known = ", ".join(output.FORMATTERS)
        raise CtlError(EXIT_USAGE, f"unknown formatter {formatter}; known: {known}")
    if name in CHANGES:
        change = CHANGES[name]
        if len(call.arguments) < change.least:
            raise UsageError("not enough arguments.")
        if len(call.arguments) > change.most:
            raise UsageError("too many arguments.")
        if change.check is not None:
            change.check(call)
    elif name in ABSENT:
        raise CtlError(EXIT_USAGE, f"{name} is not supported: {ABSENT[name]}")
    elif name not in LISTINGS and name not in DESCRIPTIONS:
        raise CtlError(EXIT_USAGE, usage.unknown(name, tool), is_plain=True)


def _execute(api: Api, node: str, call: Invocation) -> None:
    formatter = call.values.get("formatter", "tab")
    is_quiet = bool(call.flags & {"quiet", "silent"}) or formatter in output.SCRIPTED
    if call.command in LISTINGS:
        plan = listings.plan(call)
        _print_banner(plan.banner, is_quiet=is_quiet)
        rows = listings.fetch(api, call, plan)
        headers = plan.listing.headers and not call.flags & {"silent", "no_headers"}
        text = output.rows(formatter, plan.columns, rows, headers=headers)
        click.echo(text, nl=plan.listing.is_table and not text)
    elif call.command in DESCRIPTIONS:
        describe, banner = DESCRIPTIONS[call.command]
        text = output.answered(formatter, describe(api, call), node) or ""
        _print_banner(banner.replace("{node}", node), is_quiet=is_quiet)
        click.echo(text, nl=not text.endswith("\n"))
    else:
        change = CHANGES[call.command]
        banner = change.banner if isinstance(change.banner, str) else change.banner(call)
        _print_banner(_filled(banner, node, call), is_quiet=is_quiet)
        said = output.answered(formatter, change.run(api, call), node)
        if said is not None and (change.is_answer or formatter == "json" or not is_quiet):
            click.echo(said.removesuffix("\n"))


def _filled(banner: str, node: str, call: Invocation) -> str:
    known = {"node": node, "vhost": call.vhost, "priority": call.values.get("priority", "0")}
    known["rest"] = ", ".join(call.arguments[1:])
    known |= {str(i): word for i, word in enumerate(call.arguments)}
    return _PLACEHOLDER.sub(lambda found: known.get(found[1], found[0]), banner)


def _print_banner(banner: str, *, is_quiet: bool) -> None:
    if banner and not is_quiet:
        click.echo(banner)
