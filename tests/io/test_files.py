"""Files are whole or absent."""

import errno
import json
import os

import pytest

from jaxsplat.io.files import InputError, atomic_write, load_json, save_json


def test_an_exception_while_writing_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_write(path) as file:
        file.write(b"new")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device.*metrics.json"):
        save_json(tmp_path / "metrics.json", {})
    assert os.listdir(tmp_path) == []


def test_written_files_can_be_read_by_others_as_the_umask_allows(tmp_path):
    old = os.umask(0o022)
    try:
        save_json(tmp_path / "deep" / "a.json", {"a": [1, 2]})
    finally:
        os.umask(old)
    assert load_json(tmp_path / "deep" / "a.json") == {"a": [1, 2]}
    assert (tmp_path / "deep" / "a.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1,}', "malformed JSON at line 1, column"),
        (b"", "malformed JSON at line 1, column 1"),
        (b"[1]", "expected a JSON object, got list"),
        (b"\xff\xfe\x00", "not a text file in UTF-8"),
    ],
)
def test_malformed_json_says_where(tmp_path, content, message):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InputError, match=f"x.json: {message}"):
        load_json(tmp_path / "x.json")


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xef\xbb\xbf" + json.dumps({"a": 1}).encode())
    assert load_json(tmp_path / "x.json") == {"a": 1}


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere.json: no such file"):
        load_json(tmp_path / "nowhere.json")
