"""The commands on users, virtual hosts, permissions, parameters, limits and client connections."""

from __future__ import annotations

from broker.cli.ctl import clients
from broker.cli.ctl.change import Change
from broker.cli.ctl.rights import accounts, grants, parameters

_MANY = 100

RIGHTS: dict[str, Change] = {
    "add_user": Change(
        accounts.add_user,
        1,
        2,
        "<username> [<password>] [--pre-hashed-password]",
        'Adding user "{0}" ...',
    ),
    "authenticate_user": Change(
        accounts.authenticate,
        1,
        2,
        "<username> [<password>]",
        'Authenticating user "{0}" ...',
        is_answer=True,
    ),
    "change_password": Change(
        accounts.change_password,
        1,
        2,
        "<username> [<password>] [--pre-hashed-password]",
        'Changing password for user "{0}" ...',
    ),
    "clear_password": Change(
        accounts.clear_password, 1, 1, "<username>", 'Clearing password for user "{0}" ...'
    ),
    "delete_user": Change(accounts.delete_user, 1, 1, "<username>", 'Deleting user "{0}" ...'),
    "set_user_tags": Change(
        accounts.set_user_tags,
        1,
        _MANY,
        "<username> <tag> [...]",
        'Setting tags for user "{0}" to [{rest}] ...',
    ),
    "hash_password": Change(accounts.hash_password, 0, 1, "[<cleartext_password>]", is_answer=True),
    "add_vhost": Change(
        accounts.add_vhost,
        1,
        1,
        "<vhost> [--description <description> --tags <tag1>,<tag2> --default-queue-type <type>]",
        'Adding vhost "{0}" ...',
    ),
    "delete_vhost": Change(accounts.delete_vhost, 1, 1, "<vhost>", 'Deleting vhost "{0}" ...'),
    "update_vhost_metadata": Change(
        accounts.update_vhost_metadata,
        1,
        1,
        "<vhost> [--description <description>] [--tags <tag1>,<tag2>] "
        "[--default-queue-type <type>]",
        'Updating metadata of vhost "{0}" ...',
        check=accounts.check_metadata,
    ),
    "set_vhost_tags": Change(
        accounts.set_vhost_tags,
        1,
        _MANY,
        "<vhost> <tag> [...]",
        'Setting tags for virtual host "{0}" to [{rest}] ...',
    ),
    "restart_vhost": Change(
        accounts.restart_vhost,
        0,
        0,
        "[--vhost <vhost>]",
        "Trying to restart vhost '{vhost}' on node '{node}' ...",
        is_answer=True,
    ),
    "trace_on": Change(
        accounts.trace(is_traced=True),
        0,
        0,
        "[--vhost <vhost>] [--acks]",
        'Starting tracing for vhost "{vhost}" ...',
    ),
    "trace_off": Change(
        accounts.trace(is_traced=False),
        0,
        0,
        "[--vhost <vhost>]",
        'Stopping tracing for vhost "{vhost}" ...',
    ),
    "set_permissions": Change(
        grants.set_permissions,
        4,
        4,
        "[--vhost <vhost>] <username> <conf> <write> <read>",
        'Setting permissions for user "{0}" in vhost "{vhost}" ...',
    ),
    "set_permissions_globally": Change(
        grants.set_permissions_globally,
        4,
        4,
        "<username> <conf> <write> <read>",
        'Setting permissions for user "{0}" in all virtual hosts ...',
    ),
    "clear_permissions": Change(
        grants.clear_permissions,
        1,
        1,
        "[--vhost <vhost>] <username>",
        'Clearing permissions for user "{0}" in vhost "{vhost}" ...',
    ),
    "set_topic_permissions": Change(
        grants.set_topic_permissions,
        4,
        4,
        "[--vhost <vhost>] <username> <exchange> <write> <read>",
        'Setting topic permissions on "{1}" for user "{0}" in vhost "{vhost}" ...',
    ),
    "clear_topic_permissions": Change(
        grants.clear_topic_permissions,
        1,
        2,
        "[--vhost <vhost>] <username> [<exchange>]",
        grants.clear_topic_banner,
    ),
    "set_parameter": Change(
        parameters.set_parameter,
        3,
        3,
        "[--vhost <vhost>] <component_name> <name> <value>",
        'Setting runtime parameter "{1}" for component "{0}" to "{2}" in vhost "{vhost}" ...',
    ),
    "clear_parameter": Change(
        parameters.clear_parameter,
        2,
        2,
        "[--vhost <vhost>] <component_name> <name>",
        'Clearing runtime parameter "{1}" for component "{0}" on vhost "{vhost}" ...',
    ),
    "set_global_parameter": Change(
        parameters.set_global_parameter,
        2,
        2,
        "<name> <value>",
        'Setting global runtime parameter "{0}" to "{1}" ...',
    ),
    "clear_global_parameter": Change(
        parameters.clear_global_parameter,
        1,
        1,
        "<name>",
        'Clearing global runtime parameter "{0}" ...',
    ),
    "set_vhost_limits": Change(
        parameters.set_vhost_limits,
        1,
        1,
        "[--vhost <vhost>] <definition>",
        'Setting vhost limits to "{0}" for vhost "{vhost}" ...',
    ),
    "clear_vhost_limits": Change(
        parameters.clear_vhost_limits,
        0,
        0,
        "[--vhost <vhost>]",
        'Clearing vhost "{vhost}" limits ...',
    ),
    "list_vhost_limits": Change(
        parameters.list_vhost_limits,
        0,
        0,
        "[--vhost <vhost>] [--global]",
        parameters.vhost_limits_banner,
        is_answer=True,
    ),
    "set_user_limits": Change(
        parameters.set_user_limits,
        2,
        2,
        "<username> <definition>",
        'Setting user limits to "{1}" for user "{0}" ...',
    ),
    "clear_user_limits": Change(
        parameters.clear_user_limits,
        2,
        2,
        "<username> <limit_type>|all",
        parameters.clear_user_limits_banner,
    ),
    "list_user_limits": Change(
        parameters.list_user_limits,
        0,
        0,
        "[--user <username>] [--global]",
        parameters.user_limits_banner,
        is_answer=True,
    ),
    "close_connection": Change(
        clients.close_connection,
        2,
        2,
        "<connection pid> <explanation>",
        "Closing connection {0}, reason: {1}...",
    ),
    "close_all_connections": Change(
        clients.close_all_connections,
        1,
        1,
        "[--vhost <vhost> --limit <limit>] [--global] [--per-connection-delay <delay>] "
        "<explanation>",
        clients.close_all_banner,
        is_answer=True,
    ),
    "close_all_user_connections": Change(
        clients.close_all_user_connections,
        2,
        2,
        "<username> <explanation>",
        "Closing connections of user {0}, reason: {1}...",
    ),
}
