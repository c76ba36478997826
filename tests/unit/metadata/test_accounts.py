"""Vhosts, users, permissions and parameters."""

from __future__ import annotations

from broker.metadata import commands
from tests.unit.metadata.cluster import founded, refusal


def test_vhost_takes_everything_in_it_along():
    asker = founded()
    assert asker.ask(commands.AddVhost("v", user="guest")) is True
    assert asker.ask(commands.AddVhost("v", description="new")) is False
    asker.queue("q", vhost="v")
    asker.exchange("x", vhost="v", auto_delete=True)
    asker.bind("x", "q", vhost="v")
    asker.ask(commands.SetParameter("v", "vhost-limits", "limits", {"max-queues": 5}))
    catalogue = asker.machine.catalogue
    assert catalogue.permission("guest", "v") is not None
    asker.machine.take_changes()
    assert asker.ask(commands.DeleteVhost("v")) is True
    assert asker.ask(commands.DeleteVhost("v")) is False
    changes = asker.machine.take_changes()
    assert changes.vhosts_removed == ["v"]
    assert [queue.name for queue in changes.queues_removed] == ["q"]
    assert catalogue.permission("guest", "v") is None
    assert catalogue.parameters() == []
    assert catalogue.route("v", "", "q") is None


def test_user_life():
    asker = founded()
    assert asker.ask(commands.AddUser("u", "hash", tags=("management",))) is True
    assert asker.ask(commands.SetUserLimits("u", {"max-channels": 3})) is None
    assert asker.ask(commands.AddUser("u", "hash2")) is False
    assert refusal(asker.ask(commands.AddUser("u", "h", may_exist=False)))[0] == 406
    asker.ask(commands.ChangePassword("u", "hash3"))
    asker.ask(commands.SetUserTags("u", ("policymaker",)))
    user = asker.machine.catalogue.user("u")
    assert user is not None
    assert (user.password_hash, user.tags, user.limits) == (
        "hash3",
        ("policymaker",),
        {"max-channels": 3},
    )
    asker.ask(commands.SetPermissions("u", "/", "", ".*", "^q"))
    asker.ask(commands.SetTopicPermissions("u", "/", "amq.topic", "^a", "^b"))
    permission = asker.machine.catalogue.permission("u", "/")
    assert permission is not None
    assert permission.configure == ""
    assert asker.ask(commands.DeleteUser("u")) is True
    assert asker.ask(commands.DeleteUser("u")) is False
    assert asker.machine.catalogue.permission("u", "/") is None
    assert asker.machine.catalogue.topic_permissions() == []


def test_limits_of_a_user_are_changed_one_by_one():
    asker = founded()
    asker.ask(commands.AddUser("u", "hash"))

    def after(*fields: object) -> dict[str, int]:
        assert asker.ask(commands.SetUserLimits("u", *fields)) is None
        user = asker.machine.catalogue.user("u")
        assert user is not None
        return user.limits

    assert after({"max-channels": 3}, True) == {"max-channels": 3}
    assert after({"max-connections": -1}, True) == {"max-channels": 3, "max-connections": -1}
    assert after({}, True, ("max-channels", "max-foo")) == {"max-connections": -1}
    assert after({"max-channels": 1}) == {"max-channels": 1}


def test_grants_need_both_ends():
    asker = founded()
    assert refusal(asker.ask(commands.SetPermissions("u", "/", "", "", "")))[0] == 404
    assert refusal(asker.ask(commands.SetPermissions("guest", "v", "", "", "")))[0] == 404
    assert refusal(asker.ask(commands.ChangePassword("u", "h")))[0] == 404
    assert refusal(asker.ask(commands.SetParameter("v", "c", "n", 1)))[0] == 404


def test_clearing_what_is_missing_says_so():
    asker = founded()
    assert asker.ask(commands.ClearPermissions("guest", "/")) is True
    assert asker.ask(commands.ClearPermissions("guest", "/")) is False
    asker.ask(commands.SetTopicPermissions("guest", "/", "a", "w", "r"))
    asker.ask(commands.SetTopicPermissions("guest", "/", "b", "w", "r"))
    assert asker.ask(commands.ClearTopicPermissions("guest", "/", "a")) is True
    assert asker.ask(commands.ClearTopicPermissions("guest", "/")) is True
    assert asker.ask(commands.ClearTopicPermissions("guest", "/")) is False
    assert asker.ask(commands.SetParameter("", "", "g", {"a": [1]})) is True
    assert asker.ask(commands.ClearParameter("", "", "g")) is True
    assert asker.ask(commands.ClearParameter("", "", "g")) is False


def test_cluster_name_changes():
    asker = founded()
    asker.ask(commands.SetClusterName("burrow"))
    assert asker.machine.catalogue.cluster_name == "burrow"
    assert asker.machine.take_changes().parameters_changed


def test_default_queue_type_is_one_we_have_or_none():
    asker = founded()
    assert refusal(asker.ask(commands.AddVhost("v", default_queue_type="bogus")))[0] == 406
    for spelled in ("undefined", "", None):
        asker.ask(commands.AddVhost("v", default_queue_type=spelled))
        vhost = asker.machine.catalogue.vhost("v")
        assert vhost is not None
        assert vhost.default_queue_type is None
