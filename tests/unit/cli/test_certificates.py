"""`warrenmq cluster certificates`: files, steps of a rotation, interruptions, and refusals."""

from __future__ import annotations

import datetime as dt
import ssl
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.cli.certificates.folder import CertificateFolder, FolderError
from broker.cli.main import main

A, B = "rabbit@a", "rabbit@b"
NOW = dt.datetime.now(dt.UTC)


def run(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["cluster", "certificates", *words])
    return found.exit_code, found.output


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("rabbit@*/*")}


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def context(own: Path, protocol: int) -> ssl.SSLContext:
    made = ssl.SSLContext(protocol)
    made.check_hostname, made.verify_mode = False, ssl.CERT_REQUIRED
    made.load_cert_chain(own / "node.pem")
    made.load_verify_locations(own / "authorities.pem")
    return made


def accept_each_other(one: Path, other: Path) -> bool:
    """A handshake in memory, each end with the files of a folder."""
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context(one, ssl.PROTOCOL_TLS_CLIENT).wrap_bio(into, out)
    server = context(other, ssl.PROTOCOL_TLS_SERVER).wrap_bio(out, into, server_side=True)
    left = [client.do_handshake, server.do_handshake]
    try:
        while left:
            step = left.pop(0)
            try:
                step()
            except ssl.SSLWantReadError:
                left.append(step)
    except ssl.SSLError:
        return False
    return True


def test_nodes_accept_each_other_within_a_step_and_not_beyond(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path / "now", NOW)
    assert folder.make([A, B]) == [A, B]
    steps = [put(tmp_path / "0", snapshot(folder.path))]
    for number in (1, 2, 3):
        assert folder.rotate() == number
        steps.append(put(tmp_path / str(number), snapshot(folder.path)))
    for older, newer in pairwise(steps):
        assert accept_each_other(older / A, newer / B)
        assert accept_each_other(newer / A, older / B)
        assert accept_each_other(newer / A, newer / B)
    assert not accept_each_other(steps[0] / A, steps[3] / B)
    assert not accept_each_other(steps[3] / A, steps[0] / B)


def test_a_step_that_was_interrupted_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash before each file of the second step; nodes have whatever was written until then."""
    real, writes = Path.rename, 5  # former.pem, two bundles, two certificates: then next.pem
    for survives in range(writes + 1):
        folder = CertificateFolder(tmp_path / str(survives), NOW)
        folder.make([A, B])
        folder.rotate()
        before = put(tmp_path / f"{survives}-before", snapshot(folder.path))
        left = [survives]

        def rename(self: Path, target: Path, left: list[int] = left) -> Path:
            if not left[0]:
                raise OSError(28, "No space left on device")
            left[0] -= 1
            return real(self, target)

        monkeypatch.setattr(Path, "rename", rename)
        with pytest.raises(FolderError, match="No space left"):
            folder.rotate()
        monkeypatch.setattr(Path, "rename", real)
        assert accept_each_other(folder.path / A, before / B)
        assert accept_each_other(folder.path / A, folder.path / B)
        assert folder.rotate() == 2
        assert accept_each_other(folder.path / A, before / B)
        assert folder.rotate() == 3
        assert not accept_each_other(folder.path / A, before / B)
        assert [each.name for each in folder.validity()][1:] == [A, B]


def test_make_keeps_what_is_good_and_renews_what_runs_out(tmp_path: Path) -> None:
    CertificateFolder(tmp_path, NOW).make([A], days=31)
    first = snapshot(tmp_path)
    assert CertificateFolder(tmp_path, NOW).make([A, B]) == [B]
    assert snapshot(tmp_path).items() >= first.items()
    later = CertificateFolder(tmp_path, NOW + dt.timedelta(days=2))
    assert later.make([A, B]) == [A]
    assert snapshot(tmp_path)[f"{A}/node.pem"] != first[f"{A}/node.pem"]


def test_a_nodes_certificate_ends_with_its_authority(tmp_path: Path) -> None:
    CertificateFolder(tmp_path, NOW - dt.timedelta(days=3640)).make([B])
    CertificateFolder(tmp_path, NOW).renew([B], days=365)
    authority, node = CertificateFolder(tmp_path, NOW).validity()
    assert node.ends == authority.ends


def test_only_the_owner_reads_keys(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    CertificateFolder(folder, NOW).make([A])
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.glob("**/*"))}
    assert modes == {
        "certificates": 0o700,
        "authority.pem": 0o600,
        A: 0o700,
        "node.pem": 0o600,
        "authorities.pem": 0o644,
    }


def test_the_authority_can_stand_elsewhere(tmp_path: Path) -> None:
    folder, own = tmp_path / "certificates", tmp_path / "authority"
    words = ("--folder", str(folder), "--authority", str(own))
    assert run("make", A, *words)[0] == 0
    assert "Step 1 of 3" in run("rotate", *words)[1]
    assert sorted(path.name for path in folder.iterdir()) == [A]
    assert sorted(path.name for path in own.iterdir()) == ["authority.pem", "next.pem"]


def test_the_commands_say_what_they_did_and_what_is_next(tmp_path: Path) -> None:
    folder = str(tmp_path / "certificates")
    assert run("show", "--folder", folder) == (
        1,
        f"no certificates in {folder}: warrenmq cluster certificates make NODE...\n",
    )
    code, said = run("make", A, B, "--folder", folder)
    assert code == 0
    assert f"cluster.tls.folder = {folder}" in said
    assert f"{folder}/{A}: is there" in run("make", A, "--folder", folder)[1]
    assert run("renew", B, "--folder", folder) == (0, f"{folder}/{B}: made anew\n")
    assert "Step 1 of 3" in run("rotate", "--folder", folder)[1]
    assert "run this again" in run("rotate", "--folder", folder)[1]
    assert "the rotation is done" in run("rotate", "--folder", folder)[1]
    assert f"{A}/node.pem" in run("show", "--folder", folder)[1]


@pytest.mark.parametrize("name", ["../x@y", "a", "@a", "a@", "a@b\n", "a@b/c"])
def test_what_is_no_nodes_name_makes_nothing(tmp_path: Path, name: str) -> None:
    code, said = run("make", name, "--folder", str(tmp_path / "new"))
    assert (code, "is no node's full name" in said) == (1, True)
    assert not (tmp_path / "new").exists()


def test_a_damaged_authority_is_named(tmp_path: Path) -> None:
    (tmp_path / "authority.pem").write_text("nothing")
    code, said = run("make", A, "--folder", str(tmp_path))
    assert code == 1
    assert f"{tmp_path}/authority.pem is no authority" in said
