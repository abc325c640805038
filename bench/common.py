"""What the scripts beside it share: where things are, which machine this is, what fio gives."""

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
DATA = TARGET / "bench-data"
MIB = 1 << 20
#: The program under test: a release build, or another that the environment names (one of `scripts/pgo-build`).
TIERSTONE = Path(os.environ.get("TIERSTONE_PROGRAM", TARGET / "release" / "tierstone"))


def machine():
    """The line under which figures are kept."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    of = f", program {os.environ['TIERSTONE_PROGRAM']}" if "TIERSTONE_PROGRAM" in os.environ else ""
    return (
        f"{model.group(1) if model else platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, "
        f"{time.strftime('%Y-%m-%d')}, commit {commit.strip() or 'unknown'}, load {os.getloadavg()[0]:.1f} at the start{of}"
    )


def build_tierstone():
    """Builds the program under test, where it is not one that the environment names."""
    if "TIERSTONE_PROGRAM" not in os.environ:
        subprocess.run(["cargo", "build", "--release", "--locked", "-p", "tierstone-cli"], cwd=ROOT, check=True)


def time_text(us):
    return f"{us:,.0f} µs" if us < 10_000 else f"{us / 1e3:,.0f} ms"


class Joules:
    """Microjoules an operation above the idle machine, modelled from what a process did by the constants of
    `tierstone energy model` (published averages): the same for every store, so that they can be compared."""

    #: The head of its column.
    HEAD = "µJ an operation (modelled: cloud)"

    def __init__(self):
        programs = [TARGET / profile / "tierstone" for profile in ("release", "debug")]
        program = next((path for path in programs if path.exists()), None)
        self.constants = None
        if program is None:
            print("SKIP: joules (cargo build --release -p tierstone-cli has the model's constants)", file=sys.stderr)
            return
        said = subprocess.run([program, "energy", "model", "--json", "cloud"], capture_output=True, text=True, check=True)
        self.constants = {name: of["value"] for name, of in json.loads(said.stdout).items() if isinstance(of, dict)}

    def text(self, cpu_us, written=0.0, read=0.0, flushes=0.0):
        """The cell for so much processor time, so many bytes and flushes an operation."""
        if self.constants is None:
            return "–"
        of = self.constants
        joules = cpu_us / 1e6 * of["cpu_second"] + written * of["byte_written"] + read * of["byte_read"]
        return f"{(joules + flushes * of['flush']) * 1e6:.2f}"


class Memory:
    """A control group (version 1 or 2) whose processes have so much memory, page cache included."""

    def __init__(self, mib):
        self.mib = mib
        name = f"tierstone-bench-{os.getpid()}"
        first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
        if (first / "memory.limit_in_bytes").exists():
            self.group, limit = first / name, "memory.limit_in_bytes"
        else:
            self.group, limit = second / name, "memory.max"
        try:
            self.group.mkdir()
            (self.group / limit).write_text(str(mib * MIB))
        except OSError as error:
            print(f"SKIP: memory is not limited, the page cache serves peers beyond it ({error})", file=sys.stderr)
            self.group = None

    def enter(self):
        if self.group:
            (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def end(self):
        if self.group:
            self.group.rmdir()

    def __str__(self):
        limited = f"{self.mib} MiB with the page cache" if self.group else "not limited"
        return f"memory of a process: {limited}"


def fio(folder, mode, block, depth, size_mib, seconds, *more):
    """The job's result on the file system of `folder`, O_DIRECT by io_uring; None where there is no fio."""
    if shutil.which("fio") is None:
        print("SKIP: fio is not installed; its rows are left out", file=sys.stderr)
        return None
    command = ["fio", "--name=limit", f"--directory={folder}", f"--rw={mode}", f"--bs={block}", f"--iodepth={depth}"]
    command += ["--ioengine=io_uring", "--direct=1", f"--size={size_mib}M", "--output-format=json", "--numjobs=1"]
    # Its memory as huge pages: requests of many small pages are a limit of their own (docs/benchmarks/device.md).
    command += ["--iomem=malloc"]
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    command += ["--time_based", f"--runtime={seconds}"] if seconds else ["--end_fsync=1"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=True, env=environment)
    result = json.loads(done.stdout)
    job = result["jobs"][0]["read" if "read" in mode else "write"]
    for file in Path(folder).glob("limit.*"):
        if not mode.endswith("read"):
            file.unlink()
    settle()
    return job


def settle():
    """What was removed is given back to the device now, not in the midst of the next run."""
    subprocess.run(["sync"], check=True)


@contextlib.contextmanager
def memory_mount(folder, mib):
    """A file system in memory with pages of 2 MiB, as persistent memory is mapped with, at `folder`: whether there is one."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}M,huge=always", "tmpfs", folder]
    is_mounted = subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", folder])
        shutil.rmtree(folder, ignore_errors=True)
