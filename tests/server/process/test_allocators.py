"""What a burst took goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from headwater.server.process.allocators import give_memory_back
give_memory_back()
import pyarrow as pa
print(pa.default_memory_pool().backend_name, os.environ["MALLOC_ARENA_MAX"])
"""


KEEPING = """
import ctypes, os, sys
from headwater.server.process.allocators import Keeping, give_memory_back
give_memory_back()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def pages():
    return int(open("/proc/self/statm").read().split()[1])
def taken():
    blocks = [libc.malloc(1 << 20) for _ in range(16)]
    for each in blocks:
        ctypes.memset(each, 1, 1 << 20)
    small = libc.malloc(4096)  # lies above them
    for each in blocks:
        libc.free(each)
    return small
before = pages()
with Keeping() as _, Keeping():
    taken()
    kept = pages() - before
left = pages() - before
print(kept * os.sysconf("SC_PAGE_SIZE") >> 20, left * os.sysconf("SC_PAGE_SIZE") >> 20)
"""


@pytest.mark.parametrize("given", [{}, {"MALLOC_MMAP_THRESHOLD_": "131072"}])
def test_memory_is_kept_while_somebody_asks_for_it_and_goes_back_then(given: dict[str, str]) -> None:
    environment = {"PYTHONPATH": ":".join(sys.path), **given}
    ended = subprocess.run([sys.executable, "-c", KEEPING], env=environment, check=True, capture_output=True, text=True)
    kept, left = map(int, ended.stdout.split())
    assert kept >= 14 if not given else kept <= 2
    assert left <= 2


@pytest.mark.parametrize(("given", "told"), [({}, "system 2"), ({"MALLOC_ARENA_MAX": "9"}, "system 9")])
def test_arrow_and_its_process_share_one_allocator_unless_told_otherwise(given: dict[str, str], told: str) -> None:
    environment = {"PYTHONPATH": ":".join(sys.path), **given}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True)
    assert ended.stdout.strip() == told


SERVING = """
import os, signal, sys
from headwater.server.app import serve
from headwater.server.config.sources import load
config = load({"http.port": 0, "amqp.port": 0, "storage": "memory"}, environment={})
before, during = dict(os.environ), []
def stop(line):
    during.append(dict(os.environ))
    os.kill(os.getpid(), signal.SIGTERM)
serve(config, stop)
print(os.environ == before, during[0]["MALLOC_ARENA_MAX"])
"""


def test_a_server_in_another_program_leaves_its_environment_as_it_was() -> None:
    environment = {"PYTHONPATH": ":".join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", SERVING], env=environment, check=True, capture_output=True, text=True)
    assert ended.stdout.strip() == "True 2"
