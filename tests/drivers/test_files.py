"""Files that are whole at any time, and a lock that dies with its process."""

import subprocess
import sys

import pytest

from pymc_gibbsnn.drivers.files import Lock, replace_file


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "folder" / "file"
    replace_file(path, lambda file: file.write(b"one"))

    def fail(file):
        file.write(b"tw")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        replace_file(path, fail)
    assert path.read_bytes() == b"one"
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    replace_file(path, lambda file: file.write(b"two"))
    assert path.read_bytes() == b"two"


HOLD = """
import sys
from pathlib import Path
from pymc_gibbsnn.drivers.files import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()  # until it is killed
"""


def test_a_lock_ends_with_the_process_that_holds_it(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], **pipes) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RuntimeError, match=rf"is being written by process {process.pid} on .*: wait until it ends"):
            Lock(tmp_path)
        process.kill()
        process.wait()
        lock = Lock(tmp_path)
        with pytest.raises(RuntimeError, match="is being written"):
            Lock(tmp_path)
        lock.release()
        Lock(tmp_path).release()
